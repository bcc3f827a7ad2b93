"""What can go wrong, as a tree.

FairleadError
├── ConfigError            a file or a setting is wrong; carries every fault with its path
├── ExportError, KernelError  kernels cannot be exported or run: see `fairlead.kaas.errors`
├── UnknownNameError       nothing goes by that name; carries the near misses
│   ├── AmbiguousNameError  several things go by that name; carries their full names
│   └── UnknownPolicyError
├── DuplicateNameError     two things claim one name
├── HeldAtZeroError        a workflow cannot run: an operator holds one of its functions at zero instances
├── PolicyError            a policy raised; carries what was recorded until then
├── UncoveredError         the compiled engine cannot do this run, and why
└── MissingExtraError      an optional dependency is not installed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.model import Recording


class FairleadError(Exception):
    """Every failure that Fairlead itself foresees."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where: `path` is dotted, such as `functions.detect.latency`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(FairleadError):
    """A file or a setting is wrong. All its faults are listed at once."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        if len(self.faults) == 1:
            text = f"{source}: {self.faults[0]}"
        else:
            lines = "".join(f"\n  - {fault}" for fault in self.faults)
            text = f"{source}: {len(self.faults)} faults:{lines}"
        super().__init__(text)


class UnknownNameError(FairleadError):
    """Nothing goes by that name."""

    def __init__(self, kind: str, name: str, available: Iterable[str]) -> None:
        self.name = name
        self.available = tuple(sorted(available))
        listed = ", ".join(self.available) or "none"
        super().__init__(f"No {kind} named {name!r}.{suggestion(name, self.available)} Available: {listed}.")


class AmbiguousNameError(UnknownNameError):
    """Several things go by that name; `available` are their full names."""

    def __init__(self, kind: str, name: str, available: Iterable[str]) -> None:
        self.name = name
        self.available = tuple(sorted(available))
        listed = ", ".join(self.available)
        FairleadError.__init__(self, f"{len(self.available)} {kind}s are named {name!r}. Use the full name: {listed}.")


class UnknownPolicyError(UnknownNameError):
    """No policy goes by that name."""

    def __init__(self, name: str, available: Iterable[str]) -> None:
        super().__init__("policy", name, available)


class HeldAtZeroError(FairleadError):
    """A workflow cannot run, since an operator holds one of its functions at zero instances."""

    def __init__(self, app: str, workflow: str, function: str) -> None:
        self.function = function
        super().__init__(
            f"Workflow {app}.{workflow} cannot run: an operator holds its function {function} at 0 instances. To give "
            f'it back, POST {{"instances": null}} to /v1/apps/{app}/functions/{function}/scale.'
        )


class DuplicateNameError(FairleadError):
    """Two things claim one name."""


class PolicyError(FairleadError):
    """A policy raised. The cause is its own error; `recording` holds the run until then."""

    def __init__(
        self, policy: str, now: float, cause: BaseException, recording: Recording | None = None, *, about: str = ""
    ) -> None:
        self.policy = policy
        self.now = now
        self.recording = recording
        where = f" ({about})" if about else ""
        super().__init__(f"Policy {policy!r} failed at {now:g} s{where}: {type(cause).__name__}: {cause}")


class UncoveredError(FairleadError):
    """The compiled engine was asked for and cannot do the run."""

    def __init__(self, scenario: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"The compiled engine does not cover {scenario}: {reason}. Use the Python engine (engine='python', on the "
            "command line --engine python)."
        )


class MissingExtraError(FairleadError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, needs: str, extra: str) -> None:
        super().__init__(f"{what} needs {needs}. Install it with: pip install 'fairlead[{extra}]'.")


def suggestion(name: str, available: Iterable[str]) -> str:
    """A sentence that names the closest known name, with a leading blank; empty when none is close."""
    close = get_close_matches(name, list(available), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def plain(text: str) -> str:
    """A text from outside for a terminal or a log, without what would control it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\t\n" else "\ufffd" for c in text)
