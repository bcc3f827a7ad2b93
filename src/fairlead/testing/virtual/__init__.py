"""The live runtime on virtual time: no processes, no sleeping, and faults that a seed gives again.

`run` runs a coroutine on a loop whose clock jumps; `VirtualWorld` is a gateway in front of a cluster on it;
`simulate_faults` breaks it in the ways that a seed says, and checks what must hold all the same.
"""

from fairlead.testing.virtual.journal import InlineWriter, VirtualJournal
from fairlead.testing.virtual.loop import Life, LifeEndedError, StuckError, VirtualLoop, run
from fairlead.testing.virtual.nodes import VirtualCluster
from fairlead.testing.virtual.provider import VirtualProvider
from fairlead.testing.virtual.simulation import Outcome, simulate_faults
from fairlead.testing.virtual.traits import Traits
from fairlead.testing.virtual.working import die, sleep
from fairlead.testing.virtual.world import VirtualGateway, VirtualWorld

__all__ = [
    "InlineWriter",
    "Life",
    "LifeEndedError",
    "Outcome",
    "StuckError",
    "Traits",
    "VirtualCluster",
    "VirtualGateway",
    "VirtualJournal",
    "VirtualLoop",
    "VirtualProvider",
    "VirtualWorld",
    "die",
    "run",
    "simulate_faults",
    "sleep",
]
