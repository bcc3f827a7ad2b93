"""What a device costs bursty clients: with a process each, started on demand or kept, and with shared executors."""
