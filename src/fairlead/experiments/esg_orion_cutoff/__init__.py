"""ESG's comparison with Orion: hit rate against the time that Orion may search."""
