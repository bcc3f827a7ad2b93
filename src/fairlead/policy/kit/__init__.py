"""What policies share: queues, capacity, reservations in time, batching, measuring. None of it is a policy."""
