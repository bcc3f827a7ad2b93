"""Where instances run. `local` is the reference."""
