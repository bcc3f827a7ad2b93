"""How often a plan that was made in advance cannot be kept."""
