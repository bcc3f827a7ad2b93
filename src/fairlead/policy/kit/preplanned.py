"""Plans that are made once, when the first stage of a request is scheduled, and then kept. Shared by such policies.

A plan gives each stage a configuration. When a stage is scheduled, its planned configuration is used if the batch can
be filled and it fits; with fewer waiting, the same vCPUs and vGPUs with the largest batch that can be filled. Whether a
plan was kept can be read from the records: `planned` against what ran.
"""

from collections.abc import Mapping

from fairlead.model import Configuration
from fairlead.policy.kit.options import Options


def step(stage: str, configuration: Configuration) -> str:
    """One step of a recorded plan, such as `deblur b4 c1 g2`."""
    return f"{stage} b{configuration.batch} c{configuration.vcpus:g} g{configuration.vgpus:g}"


def planned(steps: str) -> dict[str, Configuration]:
    """The configurations of a recorded plan by stage: what `step` wrote, joined by ` -> `."""
    found = {}
    for each in steps.split(" -> "):
        stage, batch, vcpus, vgpus = each.rsplit(" ", 3)
        found[stage] = Configuration(batch=int(batch[1:]), vcpus=float(vcpus[1:]), vgpus=float(vgpus[1:]))
    return found


class Shrinking:
    """Finds a planned configuration with a batch that can be filled."""

    def __init__(self, known: Mapping[str, Options]) -> None:
        self._batches: dict[str, dict[tuple[float, float], list[Configuration]]] = {}
        for name, options in known.items():
            sizes = self._batches.setdefault(name, {})
            for each in sorted(options.configurations, key=lambda c: c.batch):
                sizes.setdefault((each.vcpus, each.vgpus), []).append(each)
        self._filled: dict[tuple[str, Configuration, int], Configuration] = {}

    def fill(self, function: str, configuration: Configuration, count: int) -> Configuration:
        """The planned one if so many fill it, else the largest of its size that they fill, else the smallest."""
        key = (function, configuration, min(count, configuration.batch))
        found = self._filled.get(key)
        if found is None:
            sizes = self._batches[function][configuration.vcpus, configuration.vgpus]
            usable = [each for each in sizes if each.batch <= key[2]]
            found = self._filled[key] = usable[-1] if usable else sizes[0]
        return found
