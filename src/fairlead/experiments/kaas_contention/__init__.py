"""Throughput against clients when device memory is finite, and what idle GPUs cost."""
