"""Twelve small functions that do real work, as an app (`app.py`), and what was measured of them (`kinds`)."""
