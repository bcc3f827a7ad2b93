"""ESG and its rivals: hit rate and cost in nine settings."""
