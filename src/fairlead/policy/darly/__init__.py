"""Darly: a trained agent that moves and scales the functions of a workflow. Served with NumPy."""
