"""Serverless accelerators, Table 4.1: goodputs of FIFO, Clockwork and the report's own algorithm."""
