"""What a CPU hog does to serverless functions on a shared machine: measured slow-downs beside a queue's."""
