"""Deadlines on workflows of CPU functions and kernels, served on two real devices that must evict."""
