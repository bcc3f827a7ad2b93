"""Learning: environments in which policies are trained. Needs the extra `learn`."""
