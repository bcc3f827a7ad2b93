"""Leagues that run: caching, interruption, errors, limits, and the same results however the work is spread."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from fairlead.engine import simulate
from fairlead.league import Cache, Done, run_league, tabulate
from fairlead.league.figures import run
from fairlead.league.plan import file_entrant, make_plan
from fairlead.policy import Action, Retire, View, registry
from fairlead.policy.fifo import Fifo
from fairlead.report import summarise
from fairlead.workload import PolicyChoice, load_scenario

TINY = load_scenario("quickstart", overrides={"name": "tiny", "duration_s": 2, "warmup_s": 0.5})


def league(policies=("fifo", "least-loaded"), loads=(1.0,), seeds=2):
    return make_plan([file_entrant(TINY, policies, loads)], seeds)


def figures(done):
    """What does not depend on the machine."""
    return {
        key: (one.status, one.figures and replace_measured(one.figures)) for key, one in sorted(done.outcomes.items())
    }


def replace_measured(found):
    return {
        name: getattr(found, name) for name in found.__struct_fields__ if name not in ("decision_s", "wall_s", "cpu_s")
    }


def test_a_league_fills_the_cache_finds_itself_and_does_what_is_new_or_damaged(tmp_path):
    cache = Cache(tmp_path)
    first = run_league(league(), cache, jobs=1, limit_s=60)
    assert (first.ran, first.found) == (4, 0)
    assert {"fifo on tiny at load 1", "least-loaded on tiny at load 1"} == set(cache.wall_times())

    again = run_league(league(), cache, jobs=1, limit_s=60)
    assert (again.ran, again.found) == (0, 4)
    assert again.outcomes == first.outcomes

    entry = cache._path(league().runs[0].key)
    entry.write_bytes(entry.read_bytes()[:-20])
    repaired = run_league(league(("fifo", "least-loaded", "earliest-deadline")), cache, jobs=2, limit_s=60)
    assert (repaired.ran, repaired.found) == (3, 3)  # the damaged one, and two seeds of the new policy
    assert {key: value for key, value in figures(repaired).items() if key in figures(first)} == figures(first)


def test_an_interrupted_league_goes_on_where_it_stopped(tmp_path):
    def interrupt(share, doing):
        if doing.startswith("2/"):
            raise KeyboardInterrupt

    done = Done()
    with pytest.raises(KeyboardInterrupt):
        run_league(league(), Cache(tmp_path), jobs=1, limit_s=60, progress=interrupt, done=done)
    assert len(done.outcomes) == 2
    rest = run_league(league(), Cache(tmp_path), jobs=1, limit_s=60)
    assert (rest.ran, rest.found) == (2, 2)


def test_a_run_beyond_its_limit_is_too_slow_and_the_league_goes_on(tmp_path):
    plan = league(("fifo",), seeds=1)
    done = run_league(plan, Cache(tmp_path), jobs=1, limit_s=1e-4)
    (outcome,) = done.outcomes.values()
    assert (outcome.status, outcome.limit_s) == ("too slow", 1e-4)
    assert tabulate(plan, done.outcomes).failed
    assert run_league(plan, Cache(tmp_path), jobs=1, limit_s=1e-4).found == 1
    later = run_league(plan, Cache(tmp_path), jobs=1, limit_s=60)
    assert [one.status for one in later.outcomes.values()] == ["done"]


@pytest.mark.parametrize("policy", ["fifo", "earliest-deadline", "fairlead"])
@pytest.mark.parametrize("load", [1.0, 5.0])
def test_figures_are_those_of_a_whole_simulation(policy, load):
    """A run that ends at the last deadline has the attainment of one that works everything off."""
    scenario = replace(league((policy,), (load,)).runs[0].scenario)
    found = run(scenario, 3).figures
    whole = summarise(simulate(scenario, seed=3))
    assert found.attainment == whole.slo_attainment
    assert found.worst_attainment == min(part.slo_attainment for part in whole.by_workflow.values())
    assert (found.requests, found.rejected) == (whole.requests, whole.rejected)
    assert found.cost_usd <= whole.cost_usd + 1e-12


@dataclass
class Raising(Fifo):
    """Raises after a second."""

    def decide(self, view: View) -> Iterator[Action]:
        if view.now > 1:
            raise ZeroDivisionError("no capacity\nto divide")
        yield from super().decide(view)


@dataclass
class Clumsy(Fifo):
    """Asks for what cannot be done."""

    def decide(self, view: View) -> Iterator[Action]:
        yield from super().decide(view)
        yield Retire(instance=987_654)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("raising", "ZeroDivisionError: no capacity"), ("clumsy", "refused; the first at")],
)
def test_what_is_raised_or_refused_is_an_error_with_its_reason(name, reason, monkeypatch):
    known = {**registry._known(), "raising": f"{__name__}:Raising", "clumsy": f"{__name__}:Clumsy"}
    monkeypatch.setattr(registry, "_known", lambda: known)
    outcome = run(replace(TINY, policy=PolicyChoice(name=name)), 0)
    assert outcome.status == "error"
    assert reason in outcome.reason
    assert "\n" not in outcome.reason


def test_a_run_without_a_counted_request_is_an_error():
    late = replace(TINY, warmup_s=1.9999999)
    assert "no request arrived after the warm-up" in run(late, 0).reason
