"""Load on a server over HTTP: requests at given instants, whatever the answers do, and what came of each."""

from fairlead.load.plan import Closed, Listed, Open, Plan
from fairlead.load.result import LoadResult, Times
from fairlead.load.run import LoadProgress, run_load
from fairlead.load.target import Target
from fairlead.load.tls import TLSError

__all__ = ["Closed", "Listed", "LoadProgress", "LoadResult", "Open", "Plan", "TLSError", "Target", "Times", "run_load"]
