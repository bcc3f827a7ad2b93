"""Admission control on real processes."""
