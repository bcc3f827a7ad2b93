"""CPU and memory limits of instances: control groups where they can be made, affinity and niceness where not."""

from fairlead.engine.live.limits.base import Limiter, Usage
from fairlead.engine.live.limits.choose import KINDS, make_limiter

__all__ = ["KINDS", "Limiter", "Usage", "make_limiter"]
