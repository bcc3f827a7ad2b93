"""Performance isolation: agents alone, among others, and with a view of the others."""
