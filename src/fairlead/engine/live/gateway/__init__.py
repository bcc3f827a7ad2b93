"""The gateway: HTTP in front of the runtime."""

from fairlead.engine.live.gateway.server import serve
from fairlead.engine.live.gateway.settings import Settings, read_token

__all__ = ["Settings", "read_token", "serve"]
