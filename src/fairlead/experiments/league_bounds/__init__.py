"""What no dispatcher can beat in the core league, beside the best of it."""
