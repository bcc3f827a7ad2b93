"""What it is worth to see the others, and how."""
