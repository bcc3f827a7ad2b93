"""Darly: frozen agents, and one for any workflow."""
