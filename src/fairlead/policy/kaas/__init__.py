"""Kernel-as-a-Service: clients share devices that keep their models warm. Queueing policies, one file each."""
