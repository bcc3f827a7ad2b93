"""Goodput of `fairlead` and its rivals against load, up to ten times."""
