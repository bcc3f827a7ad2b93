"""Placements of a video workflow on emulated nodes of this machine, under pressure that wanders."""
