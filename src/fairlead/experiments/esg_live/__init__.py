"""ESG, its rivals and `fairlead` on real processes."""
