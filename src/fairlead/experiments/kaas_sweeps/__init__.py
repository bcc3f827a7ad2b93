"""Waits of the KaaS policies against load, GPUs, cold-start time, execution time and number of clients."""
