"""Load on a server over HTTP: requests at given instants, whatever the answers do, and what came of each."""

from fairlead.client.target import Target
from fairlead.client.tls import TLSError
from fairlead.load.plan import Call, Closed, Listed, Open, Picks, Plan
from fairlead.load.result import LoadResult, Times
from fairlead.load.run import LoadProgress, run_load

__all__ = [
    "Call",
    "Closed",
    "Listed",
    "LoadProgress",
    "LoadResult",
    "Open",
    "Picks",
    "Plan",
    "TLSError",
    "Target",
    "Times",
    "run_load",
]
