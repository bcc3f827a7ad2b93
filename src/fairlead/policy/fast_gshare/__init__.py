"""FaST-GShare: pods sized by throughput per resource, packed as rectangles onto GPUs."""
