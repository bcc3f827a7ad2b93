"""Kernel-as-a-Service: clients share devices that keep their models warm. Six queueing policies, one file each."""
