"""A thousand functions: training and serving on one machine."""
