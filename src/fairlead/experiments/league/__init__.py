"""The core league of all general dispatchers."""
