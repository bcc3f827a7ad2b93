"""Aquatope: configurations found offline by Bayesian optimisation, and a pool of containers sized with uncertainty."""
