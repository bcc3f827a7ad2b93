"""Policies that go wrong, for the tests of what is said then."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fairlead.policy import Action, Retire, View, registry
from fairlead.policy.fifo import Fifo


@dataclass
class Raising(Fifo):
    """Does its work for a second, then raises.

    Args:
        after_s: When it raises.
    """

    after_s: float = 1.0

    def decide(self, view: View) -> Iterator[Action]:
        if view.now > self.after_s:
            raise ZeroDivisionError("no more capacity\nto divide")
        yield from super().decide(view)


@dataclass
class Clumsy(Fifo):
    """Asks for what cannot be done, after it has done its work."""

    def decide(self, view: View) -> Iterator[Action]:
        yield from super().decide(view)
        yield Retire(instance=987_654)


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make them known by name until the test ends."""
    ours = {
        "raising": "failing_policies:Raising",
        "clumsy": "failing_policies:Clumsy",
        "missing": "no_such_module:Policy",
    }
    known = {**registry._known(), **ours}
    monkeypatch.setattr(registry, "_known", lambda: known)
