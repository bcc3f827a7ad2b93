"""What a league consists of by default: league.yaml as values."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

import msgspec
import yaml

from fairlead.policy import policy_names


class TimesRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long shipped scenarios run: league.yaml says how the three numbers are used."""

    requests: float
    slos: float
    cold_starts: float


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lists and numbers of league.yaml."""

    loads: tuple[float, ...]
    app_loads: tuple[float, ...]
    seeds: int
    limit_s: float
    policies: tuple[str, ...]
    specialised: Mapping[str, tuple[str, ...]]
    times: TimesRule
    core: tuple[str, ...]
    left_out: Mapping[str, str]

    def general(self) -> tuple[str, ...]:
        """The general dispatchers that are registered."""
        return tuple(name for name in self.policies if name in policy_names())

    def specialised_for(self, scenario: str) -> tuple[str, ...]:
        """The registered dispatchers that are made for scenarios of this name."""
        known = policy_names()
        return tuple(
            name
            for pattern, names in self.specialised.items()
            if fnmatchcase(scenario, pattern)
            for name in names
            if name in known
        )


@cache
def catalogue() -> Catalogue:
    """The catalogue that comes with Fairlead."""
    text = (files("fairlead.league") / "league.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), type=Catalogue)
