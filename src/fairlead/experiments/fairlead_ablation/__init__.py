"""What each mechanism of `fairlead` is worth: one left out at a time."""
