"""What functions write: captured in their instances, kept in bounded segments on disk, read by request or function."""
