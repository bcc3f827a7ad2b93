"""Darly: a simulated cluster, and agents that move and scale a video workflow on it."""
