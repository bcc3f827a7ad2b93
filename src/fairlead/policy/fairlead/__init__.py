"""One policy for all: plans, admits, places and warms by one model of what the cluster can still do in time."""
