"""A node: runs instances as processes of this machine, for a gateway in this or another process."""
