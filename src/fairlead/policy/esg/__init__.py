"""ESG: per-stage search over batch, vCPUs and vGPUs, with a shared latency budget."""
