"""Scalers on real functions, processes and CPU limits of this machine."""
