"""Published claims, one folder each, and the named scenario files."""
