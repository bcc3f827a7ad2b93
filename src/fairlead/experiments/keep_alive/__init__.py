"""Cold starts against wasted memory: keep-alive rules for a fleet of functions."""
