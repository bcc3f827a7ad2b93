"""Darly: what splitting the workflow costs."""
