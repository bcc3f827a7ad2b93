"""Darly: what queue-workers gain."""
