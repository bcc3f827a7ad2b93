"""Darly: four schedulers in training."""
