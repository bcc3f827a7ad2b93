"""Deadlines on workflows of CPU functions and kernels, whose buffers do not fit into device memory together."""
