"""Darly: what unlike nodes cost."""
