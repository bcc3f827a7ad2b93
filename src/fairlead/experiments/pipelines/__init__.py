"""Ensemble and cascade: Clipper against Cloudburst, fusion, competition and batching, CPU against GPU."""
