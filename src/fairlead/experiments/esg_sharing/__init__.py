"""ESG and its rivals on GPUs that are shared as GPUs are, and under a load that wanders."""
