"""The splits of a workflow: every way to cut its chains of stages into fused runs."""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from fairlead.app.fusion import Chain, all_chains, fuse_manifest, fused_name, unfused_manifest
from fairlead.app.manifest import Manifest

MOST_SPLITS = 16
"""More are not compared one by one; see `splits_of`."""


class Split(msgspec.Struct, frozen=True):
    """One way to cut. `runs` has, by chain, the stages that run together; a stage by itself is a run of one."""

    runs: tuple[tuple[Chain, ...], ...]

    @property
    def label(self) -> str:
        """Runs are separated by `|`, chains by `;`."""
        return "; ".join(" | ".join(fused_name(run) for run in chain) for chain in self.runs)

    @property
    def chains(self) -> list[Chain]:
        """What is to be fused."""
        return [run for chain in self.runs for run in chain if len(run) > 1]

    def manifest(self, app: Manifest, workflow: str) -> Manifest:
        """The app with this workflow split so; its other workflows are as they were declared."""
        declared = {
            other.name: [stage.parts for stage in other.stages if stage.parts]
            for other in app.workflows
            if other.name != workflow
        }
        return fuse_manifest(unfused_manifest(app), {**declared, workflow: self.chains})


def splits_of(app: Manifest, workflow: str) -> tuple[list[Split], int]:
    """The splits of a workflow, from every stage by itself to the longest runs, and how many are left out.

    A workflow whose chains can be cut at n places has 2 to the power of n splits. Up to 16 are all taken. Of more, only
    those are that cut everywhere, nowhere, at one place, or at all but one.
    """
    plain = unfused_manifest(app)
    spec = next(each for each in plain.workflows if each.name == workflow)
    chains = all_chains(spec.stages, {function.name: function for function in plain.functions})
    places = sum(len(chain) - 1 for chain in chains)
    found = [_cut(chains, cuts) for cuts in _cuts(places)]
    return found, 2**places - len(found)


def _cuts(places: int) -> Iterator[tuple[bool, ...]]:
    """Where to cut; the most cuts first."""
    if 2**places <= MOST_SPLITS:
        yield from sorted(product((True, False), repeat=places), key=lambda cuts: -sum(cuts))
        return
    yield (True,) * places
    for is_cut in (False, True):
        for place in range(places):
            yield tuple(is_cut if each == place else not is_cut for each in range(places))
    yield (False,) * places


def _cut(chains: Sequence[Chain], cuts: Sequence[bool]) -> Split:
    """The chains, cut at these of the places between their stages."""
    left = iter(cuts)
    runs = []
    for chain in chains:
        pieces: list[list[str]] = [[chain[0]]]
        for name in chain[1:]:
            if next(left):
                pieces.append([name])
            else:
                pieces[-1].append(name)
        runs.append(tuple(tuple(piece) for piece in pieces))
    return Split(tuple(runs))
