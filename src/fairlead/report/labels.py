"""Runs in words: who decided, with which parameters, and where in a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

RUN = "run"
"""The setting under which `fairlead report` keeps apart runs that differ in nothing but their folder."""


class Decided(Protocol):
    """What tells a run from others but for its seed: a `Recording`, a `Summary` or an `Aggregate`."""

    @property
    def policy(self) -> str:
        """The policy that dispatches."""
        ...

    @property
    def scaler(self) -> str | None:
        """The policy that scales, if any."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """Those of the policy."""
        ...

    @property
    def point(self) -> Mapping[str, object]:
        """Where in a sweep."""
        ...


def identity(run: Decided) -> tuple[str, str | None, str, str]:
    """Policy, scaler, parameters and point: runs that share it differ in their seed only."""
    return (run.policy, run.scaler, _text(run.parameters), point_label(run.point))


def who_labels(runs: Iterable[Decided]) -> list[str]:
    """Who decided, one text per run: `esg`, or `esg (mode=fixed)` where another run has the same but for its mode.

    Shown are the parameters that differ between runs of one policy at one sweep point: what a sweep changes is in
    the point already.
    """
    rows = list(runs)
    together: dict[tuple[str, str | None, str], list[Decided]] = {}
    for run in rows:
        together.setdefault((run.policy, run.scaler, point_label(run.point)), []).append(run)
    telling: dict[tuple[str, str | None], set[str]] = {}
    for (policy, scaler, _), group in together.items():
        telling.setdefault((policy, scaler), set()).update(_differing(group))
    return [
        policy_label(run.policy, run.scaler, {k: v for k, v in run.parameters.items() if k in keys})
        for run in rows
        for keys in [telling[run.policy, run.scaler]]
    ]


def policy_label(policy: str, scaler: str | None, parameters: Mapping[str, object] | None = None) -> str:
    """Who decided: `esg`, `esg + simppo` with a scaler, `esg (mode=fixed)` with parameters worth telling."""
    name = f"{policy} ({point_label(parameters)})" if parameters else policy
    return f"{name} + {scaler}" if scaler else name


def point_label(point: Mapping[str, object]) -> str:
    """Settings in words: `rate_rps=40, sharing=mps`; empty without any."""
    return ", ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in point.items()
    )


def shared_key(runs: Iterable[Decided]) -> str:
    """The one setting that a sweep changes; empty where it is not one, or where there is no sweep."""
    keys = {tuple(run.point) for run in runs}
    only = keys.pop() if len(keys) == 1 else ()
    return only[0] if len(only) == 1 else ""


def plain(value: object) -> object:
    """The same value as dicts, lists, texts and numbers; a type that is none of these becomes its text."""
    return msgspec.to_builtins(value, enc_hook=_builtin)


def _differing(group: Sequence[Decided]) -> set[str]:
    keys = {key for run in group for key in run.parameters}
    return {key for key in keys if len({_text(run.parameters.get(key)) for run in group}) > 1}


def _text(value: object) -> str:
    """The same for values that are equal once they have been stored: a tuple comes back as a list."""
    return json.dumps(plain(value), sort_keys=True)


def _builtin(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
