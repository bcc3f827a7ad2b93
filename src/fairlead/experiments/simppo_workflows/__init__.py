"""Agents that know their place in a workflow."""
