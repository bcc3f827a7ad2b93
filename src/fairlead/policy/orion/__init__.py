"""Orion: sizes for a whole workflow, from the distribution of its latency."""
