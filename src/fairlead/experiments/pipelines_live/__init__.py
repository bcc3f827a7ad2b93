"""Ensemble and cascade of real networks on this machine."""
