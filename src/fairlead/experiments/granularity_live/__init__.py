"""The video workflow in four granularities, live."""
