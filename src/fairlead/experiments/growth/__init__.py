"""A day of wandering load: a cluster that grows and shrinks against fixed ones."""
