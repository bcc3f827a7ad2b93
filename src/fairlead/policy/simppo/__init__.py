"""SIMPPO: one learning agent per function, and the rest of the cluster as one virtual agent. Served with NumPy."""
