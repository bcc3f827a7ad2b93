"""Kernel-as-a-Service on real devices: clients that share two of them, served, as actors, and as simulated."""
