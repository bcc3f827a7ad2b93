"""How instances are spoken to."""
