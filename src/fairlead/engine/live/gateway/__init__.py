"""The gateway: HTTP in front of the runtime. `server.serve` runs it; the settings alone load nothing else."""

from fairlead.engine.live.gateway.settings import Settings, read_token

__all__ = ["Settings", "read_token"]
