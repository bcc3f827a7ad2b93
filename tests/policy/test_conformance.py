"""Every registered policy passes the suites that outsiders' policies pass; and the suites find what they look for."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fairlead.errors import PolicyError
from fairlead.model import Configuration
from fairlead.policy import (
    Action,
    Grow,
    Move,
    Policy,
    Reject,
    Resize,
    Scale,
    Site,
    Start,
    View,
    Wake,
    policy_class,
    policy_names,
    role,
)
from fairlead.testing import (
    DISPATCHER_CHECKS,
    SCALER_CHECKS,
    SCENARIOS,
    check_dispatcher,
    check_scaler,
    maker,
    scenario,
)

DISPATCHERS = [name for name in policy_names() if role(policy_class(name)) == "dispatch"]
SCALERS = [name for name in policy_names() if role(policy_class(name)) == "scale"]


def _name(check) -> str:
    return check.__name__


MAKERS = {name: maker(name) for name in policy_names()}
WORLDS = {where: build() for where, build in SCENARIOS.items()}  # built once, so that checks share runs


def _in_every_scenario(name: str, check) -> None:
    for where, world in WORLDS.items():
        try:
            check(MAKERS[name], world)
        except AssertionError as error:
            raise AssertionError(f"scenario {where}: {error}") from error


@pytest.mark.parametrize("name", DISPATCHERS)
@pytest.mark.parametrize("check", DISPATCHER_CHECKS, ids=_name)
def test_dispatcher_conforms(check, name):
    _in_every_scenario(name, check)


@pytest.mark.parametrize("name", SCALERS)
@pytest.mark.parametrize("check", SCALER_CHECKS, ids=_name)
def test_scaler_conforms(check, name):
    _in_every_scenario(name, check)


# --- the suites find what they look for ----------------------------------------------------------------------------


@dataclass
class Base(Policy):
    """Starts the oldest where it fits."""

    def decide(self, view: View) -> Iterator[Action]:
        while (invocation := view.oldest()) is not None:
            configuration = self.configuration(view, invocation.function)
            node = view.place(invocation.function, configuration)
            if node is None:
                return
            yield Start((invocation,), configuration, node)

    def configuration(self, view: View, function: str) -> Configuration:
        return view.profile(function).configurations[0]


COUNTER = iter(range(10**9))


@dataclass
class Forgetful(Base):
    """Takes every second call off, by a counter that outlives the run."""

    def decide(self, view: View) -> Iterator[Action]:
        if next(COUNTER) % 7:
            yield from super().decide(view)


@dataclass
class Pushy(Base):
    """Starts without asking whether it fits."""

    def decide(self, view: View) -> Iterator[Action]:
        for invocation in view.by_ready():
            yield Start((invocation,), self.configuration(view, invocation.function), view.nodes[0].name)


@dataclass
class Doubtful(Base):
    """Waits before its first decision, longer each time that it is prepared."""

    def prepare(self, site, rng) -> None:
        self.first = getattr(self, "first", 0.0) + 0.5

    def decide(self, view: View) -> Iterator[Action]:
        if view.now < self.first:
            yield Wake(self.first)
        else:
            yield from super().decide(view)


@dataclass
class Hesitant(Base):
    """Starts one at a time."""

    def decide(self, view: View) -> Iterator[Action]:
        yield from [action for action, _ in zip(super().decide(view), range(1), strict=False)]


@dataclass
class Starving(Base):
    """Never starts the first request."""

    def decide(self, view: View) -> Iterator[Action]:
        for invocation in view.by_ready():
            node = view.place(invocation.function, self.configuration(view, invocation.function))
            if invocation.request and node is not None:
                yield Start((invocation,), self.configuration(view, invocation.function), node)


@dataclass
class Demanding(Base):
    """Has a parameter that cannot be left out."""

    needed: int = field(kw_only=True)


BY_NAME = {check.__name__: check for check in DISPATCHER_CHECKS}


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (Forgetful, "same_seed_gives_same_records"),
        (Pushy, "nothing_is_refused"),
        (Hesitant, "a_second_call_yields_nothing"),
        (Doubtful, "preparing_again_starts_afresh"),
        (Starving, "every_request_ends_once"),
        (lambda: Demanding(needed=1), "parameters_have_defaults"),
    ],
)
def test_suite_notices(make, check):
    with pytest.raises((AssertionError, PolicyError)):
        BY_NAME[check](make, SCENARIOS["chain"]())


def test_suite_notices_knowledge_of_the_future():
    last_arrivals = iter([9.75, 4.75])  # of the whole scenario and of its first half

    @dataclass
    class Seer(Base):
        """Knows when the last request will come, by a side channel, and rejects those far ahead of it."""

        def prepare(self, site: Site, rng) -> None:
            self.last = next(last_arrivals)

        def decide(self, view: View) -> Iterator[Action]:
            for request in view.fresh:
                if self.last - request.arrival > 8:
                    yield Reject(request.id, "there is more to come")
            yield from super().decide(view)

    with pytest.raises(AssertionError, match="is it clairvoyant"):
        BY_NAME["the_future_is_unknown"](Seer, SCENARIOS["chain"]())


def test_suite_notices_a_view_that_changes():
    check = BY_NAME["the_view_stays_as_it_is"]

    @dataclass
    class Meddling(Base):
        """Reaches into the controller by a private name."""

        def decide(self, view: View) -> Iterator[Action]:
            view._ControllerView__controller.freed.append("nowhere")
            yield from super().decide(view)

    with pytest.raises(PolicyError, match=r"view\.freed has changed"):
        check(Meddling, SCENARIOS["chain"]())


def test_whole_suite_runs_in_one_call():
    check_dispatcher("fifo", {"chain": SCENARIOS["chain"]})


# --- scalers -------------------------------------------------------------------------------------------------------


@dataclass
class Steady(Policy):
    """So many replicas of every function, and now and then one more node.

    Args:
        replicas: Of each function.
    """

    replicas: int = 2

    def prepare(self, site: Site, rng) -> None:
        self._functions = tuple(site.functions)
        self._kind = site.cluster.nodes[0].kind
        self._periods = 0

    def adjust(self, view: View) -> Iterator[Action]:
        self._periods += 1
        if self._periods == 1:
            for function in self._functions:
                yield Scale(function, self.replicas)
        elif self._periods % 6 == 3:
            yield Grow(self._kind)


@dataclass
class Wrong(Steady):
    """Resizes what it never scaled."""

    def adjust(self, view: View) -> Iterator[Action]:
        yield Resize(self._functions[0], 1.0)


@dataclass
class Meddler(Steady):
    """Does the dispatcher's work."""

    def adjust(self, view: View) -> Iterator[Action]:
        for invocation in view.by_ready():
            yield Reject(invocation.request, "no")


@dataclass
class Closing(Steady):
    """Scales everything to nothing."""

    replicas: int = 0


def test_toy_scaler_conforms():
    check_scaler(Steady, {name: SCENARIOS[name] for name in ("chain", "map-join", "gpu-mps", "closed-loop", "retries")})


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (Wrong, "scaling_is_never_refused"),
        (Closing, "scaling_starves_nobody"),
        (Meddler, "scaling_leaves_dispatch_alone"),
    ],
)
def test_scaler_suite_notices(make, check):
    found = {c.__name__: c for c in SCALER_CHECKS}[check]
    with pytest.raises((AssertionError, PolicyError)):
        found(make, SCENARIOS["chain"]())


def test_actions_of_scalers_are_refused_with_a_reason():
    @dataclass
    class Moving(Steady):
        """Moves what is not scaled."""

        def adjust(self, view: View) -> Iterator[Action]:
            yield Move(self._functions[0], "n0")

    check = {c.__name__: c for c in SCALER_CHECKS}["scaling_is_never_refused"]
    with pytest.raises(AssertionError, match="is not scaled"):
        check(Moving, scenario(10.0, arrivals=(0.0, 1.5)))
