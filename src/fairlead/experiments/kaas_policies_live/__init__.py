"""The KaaS policies on real devices: waits, cold starts and fairness, beside the simulator's order."""
