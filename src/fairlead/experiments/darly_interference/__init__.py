"""Darly: what pressure costs, by node."""
