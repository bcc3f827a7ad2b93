"""Apps that were never measured, served from their first request on."""
