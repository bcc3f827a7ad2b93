"""Clockwork: a central controller that predicts the start and the finish of every action."""
