"""Where instances run: processes of this machine."""
