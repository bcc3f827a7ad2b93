"""How wrong profiles, noise and cold starts change what `fairlead` and its rivals attain."""
