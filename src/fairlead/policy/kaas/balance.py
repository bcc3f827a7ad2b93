"""The oldest request to any free device.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 6.1, "Balance".

**Differs from the paper:** its devices are alike and its models run on any. Here the head of the queue waits until a
device that can hold its function is free, and blocks those behind it as long; what no device that is up
can hold does not block. Of several free devices the one released first is taken, which the printed traces imply.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kaas.devices import Devices, Mode
from fairlead.policy.kit.lines import oldest_first


@dataclass
class Balance(Policy):
    """Start the oldest on any free device: no device idles while something waits that it could run.

    Args:
        mode: `compat` is the paper's rule, which needs no knowledge of the future: the same as `online`.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 6.1"

    mode: Mode = "online"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        unheld: set[str] = set()
        for invocation in oldest_first(view, unheld):
            free = self._devices.first_free(view, invocation.function, up)
            if free is not None:
                yield free.start(invocation)
            elif self._devices.can_hold(invocation.function, up):
                return  # strict order
            else:
                unheld.add(invocation.function)
