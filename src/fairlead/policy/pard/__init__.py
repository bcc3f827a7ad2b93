"""PARD: requests that would be late at the end are dropped early, and the load decides which of them."""
