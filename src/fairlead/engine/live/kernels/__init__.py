"""Kernels of apps on the devices of a node: executors, and the instances that stand for a kernel on a device."""
