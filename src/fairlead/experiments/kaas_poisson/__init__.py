"""Cold starts and waits of the KaaS policies under Poisson arrivals."""
