"""Traces of requests: what is noted of each, and how it becomes spans of OpenTelemetry."""
