"""DAG admission control: promise an answer in time and at a price when a request arrives, or refuse it at once."""
