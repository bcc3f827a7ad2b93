"""The live runtime: the same controller on the real clock, with real processes."""
