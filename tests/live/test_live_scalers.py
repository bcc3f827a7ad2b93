"""Scalers on virtual time: replicas come and go, limits follow, and no function is left alone."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from runtimes import load, ready, until
from virtual_runtimes import run, served

from fairlead.engine.live import runtime as runtimes_module
from fairlead.errors import ConfigError
from fairlead.policy import Policy, make_policy
from fairlead.policy.base import Action, Grow, Resize, Scale, Shrink, View
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained, write_checkpoint
from fairlead.policy.simppo.observation import Encoding
from fairlead.testing.virtual import Traits

NAP = """
    @app.function(vcpus=(0.5, 1), warm=1)
    def nap(seconds):
        sleep(seconds)
        return "rested"

    app.workflow("main", nap)
"""

KNATIVE = {"stable_window_s": 1.2, "panic_window_s": 0.6, "grace_s": 0.3, "min_replicas": 1, "max_replicas": 4}
HPA = {"period_s": 0.3, "stabilisation_s": 0.6, "max_replicas": 4}
SCALERS = [("knative", KNATIVE), ("hpa", HPA), ("threshold", {"max_replicas": 4})]
ALONE = {"max_replicas": 1}


def scaled(source: str, scaler: str, given: Mapping[str, object], *, period_s: float = 0.3, overcommit: float = 4):
    """Serve the app of this text under a scaler."""
    return served(source, "least-loaded", scaler=scaler, given=given, period_s=period_s, overcommit=overcommit)


@pytest.mark.parametrize(("scaler", "given"), SCALERS)
def test_load_brings_replicas_and_its_end_takes_them_away(scaler, given):
    async def test():
        async with scaled(NAP, scaler, given) as app:
            first = app.keys("nap")
            assert len(first) == 1
            async with load(app, 6, 0.1) as endings:
                await until(lambda: ready(app, "nap") >= 3)
                assert len(app.keys("nap")) >= 3
                if scaler != "threshold":  # which begins with one vCPU, so with another instance
                    assert first[0] in app.keys("nap")  # it was a replica from the start
            await until(lambda: len(app.keys("nap")) == 1)
            assert set(endings) == {"completed"}

    run(test)


def test_a_replica_that_is_killed_is_replaced_and_its_request_answered():
    async def test():
        async with scaled(NAP, "hpa", {"initial": 2, "min_replicas": 2, "max_replicas": 2}) as app:
            await until(lambda: ready(app, "nap") == 2)
            async with load(app, 3, 0.05) as endings:
                await asyncio.sleep(0.1)
                killed = app.keys("nap")[0]
                app.kill(killed)
                await until(lambda: killed not in app.keys("nap") and ready(app, "nap") == 2)
            assert set(endings) == {"completed"}

    run(test)


def test_more_memory_comes_with_another_instance_and_no_request_notices():
    async def test():
        async with scaled(NAP, "hpa", ALONE, period_s=60) as app:
            (before,) = app.keys("nap")
            async with load(app, 2, 0.02) as endings:
                await asyncio.sleep(0.1)
                app.runtime.order(Resize("nap", 0.5, 0.5))
                living = []
                await until(lambda: (living.append(ready(app, "nap")), before not in app.keys("nap"))[1])
                (instance,) = app.runtime.controller.pool.instances.values()
                assert instance.configuration.memory_gb == 0.5
            assert min(living) == 1  # the replacement was ready before the old one went
            assert set(endings) == {"completed"}

    run(test)


SEVERAL = """
    @app.function()
    def one(x): return x

    @app.function()
    def two(x): return x

    @app.function()
    def three(x): return x

    app.node("small", vcpus=1)
    app.workflow("main", one >> two >> three)
"""


def test_a_node_promises_more_than_it_has_only_if_it_is_told_to():
    async def test():
        with pytest.raises(ConfigError, match="no room for the first replicas of every function; there is 1 vCPUs"):
            async with scaled(SEVERAL, "hpa", ALONE, overcommit=1):
                pass
        async with scaled(SEVERAL, "hpa", ALONE, overcommit=3) as app:
            assert await app.answer("main", 7) == 7
            assert [ready(app, name) for name in ("one", "two", "three")] == [1, 1, 1]

    run(test)


@dataclass
class Odd(Policy):
    """Wants three replicas, notes something, and fails or asks for nodes when it is told to."""

    fails: str = ""
    grows: str = ""
    asked = 0

    def prepare(self, site, rng) -> None:
        self._functions = tuple(site.functions)

    def adjust(self, view: View) -> Iterator[Action]:
        self.asked += 1
        if self.grows:
            yield from (Grow(self.grows), Shrink(self.grows))
        for function in self._functions:
            yield Scale(function, 3)
        if self.fails == "adjust" and self.asked > 1:
            raise RuntimeError("as asked")

    def observe(self, record) -> None:
        if self.fails == "observe":
            raise RuntimeError("as asked")

    def notes(self) -> Mapping[str, Mapping[str, float]]:
        if self.fails == "notes":
            raise RuntimeError("as asked")
        return {name: {"shadow_replicas": 4 + self.asked * 0} for name in self._functions}


def with_odd(monkeypatch, scaler: Odd) -> None:
    def made(name, given=None):
        return scaler if name == "odd" else make_policy(name, given)

    monkeypatch.setattr(runtimes_module, "make_policy", made)


def test_a_scaler_that_raises_gives_way_to_a_rule_and_takes_no_replica_with_it(monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(fails="adjust"))
        async with scaled(NAP, "odd", {}) as app:
            await until(lambda: app.runtime.policy_errors == 1)
            assert app.runtime.scaler_name == "hpa"
            assert app.runtime.policy_name == "least-loaded"  # the dispatcher did nothing wrong
            assert any("RuntimeError: as asked; hpa takes over" in line for line in app.log)
            await until(lambda: app.runtime.controller.decisions.adjustments >= 4)
            assert app.runtime.controller.replicas.sets["nap"].target == 3
            assert await app.answer("main", 0.0) == "rested"

    run(test)


def test_an_operators_order_wins_over_the_scaler_until_it_is_taken_back(monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd())
        async with scaled(NAP, "odd", {}) as app:
            decisions = app.runtime.controller.decisions

            def nap():
                return app.runtime.tally.functions()[0]

            await until(lambda: nap().replicas == 3)
            assert nap().held is None
            app.runtime.scale("nap", 1)
            await until(lambda: nap().replicas == 1)
            asked = decisions.adjustments
            await until(lambda: decisions.adjustments >= asked + 3)
            assert (nap().replicas, nap().held) == (1, "operator")
            assert app.runtime.refused_actions >= 2  # one per control period
            app.runtime.scale("nap", None)
            await until(lambda: nap().replicas == 3)
            assert nap().held is None
            assert app.runtime.policy_errors == 0

    run(test)


def test_a_cluster_that_cannot_grow_refuses_and_everything_goes_on(monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(grows="local"))
        async with scaled(NAP, "odd", {}) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 3)
            assert app.runtime.refused_actions >= 4  # a Grow and a Shrink per control period
            assert app.runtime.controller.replicas.sets["nap"].target == 3  # what it wanted after them
            assert app.runtime.policy_errors == 0
            assert await app.answer("main", 0.0) == "rested"

    run(test)


def test_a_scaler_that_cannot_observe_gives_way_and_the_request_that_it_saw_is_answered(monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd(fails="observe"))
        async with scaled(NAP, "odd", {}) as app:
            assert await app.answer("main", 0.0) == "rested"
            assert (app.runtime.scaler_name, app.runtime.policy_name) == ("hpa", "least-loaded")

    run(test)


def test_notes_are_shown_by_function_and_a_scaler_that_cannot_tell_them_scales_on(monkeypatch):
    async def test():
        with_odd(monkeypatch, Odd())
        async with scaled(NAP, "odd", {}) as app:
            await until(lambda: app.runtime.notes() == {"nap": {"shadow_replicas": 4.0}})
        with_odd(monkeypatch, Odd(fails="notes"))
        async with scaled(NAP, "odd", {}) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 3)
            assert app.runtime.notes() == {}
            assert sum("what the scaler notes cannot be read" in line for line in app.log) == 1
            assert app.runtime.controller.replicas.sets["nap"].target == 3

    run(test)


def agents_that_always(action: int, path: Path) -> str:
    """A file with one network for all, which takes the same action whatever it sees."""
    inputs = Encoding(own="seven", others="global4").size
    arrays = {}
    for network, outputs in (("actor", 7), ("critic", 1)):
        for layer, (ins, outs) in enumerate(pairwise((inputs, 4, outputs))):
            arrays[f"{network}.{layer}.weight"] = np.zeros((1, ins, outs), np.float32)
            arrays[f"{network}.{layer}.bias"] = np.zeros((1, outs), np.float32)
    arrays["actor.1.bias"][0, action] = 5
    description = Description(
        own="seven",
        others="global4",
        slots=0,
        is_workflow_aware=False,
        actions=7,
        activation="relu",
        is_shared=True,
        slo_weight=0.7,
        period_s=1.0,
        most_replicas=20,
        preset="modern",
        scenario="tests",
        seed=0,
        episodes=1,
        agents=(Trained(function="nap", time_s=0.1, slo_s=1.0, reward=0.8, reward_deviation=0.01),),
    )
    write_checkpoint(Checkpoint(description=description, arrays=arrays), path)
    return str(path)


def test_trained_agents_act_and_in_shadow_they_only_say_so(tmp_path):
    async def test():
        more = agents_that_always(1, tmp_path / "more.safetensors")
        async with scaled(NAP, "simppo", {"checkpoint": more, "first_replicas": 1}) as app:
            await until(lambda: ready(app, "nap") >= 3)
            assert app.runtime.notes()["nap"]["is_agent"] == 1
        shadow = {"checkpoint": more, "first_replicas": 1, "mode": "shadow"}
        async with scaled(NAP, "simppo", shadow) as app:
            await until(lambda: app.runtime.controller.decisions.adjustments >= 4)
            assert app.runtime.controller.replicas.sets["nap"].target == 1  # by the rule: nothing arrives
            notes = app.runtime.notes()["nap"]
            assert (notes["is_agent"], notes["shadow_replicas"]) == (0, 2)

    run(test)


def test_a_resize_that_is_refused_is_known_while_the_instance_runs_and_asked_for_again():
    async def test():
        traits = Traits(start_s=(0.2, 0.2), resizes=False)
        how = {"scaler": "hpa", "given": ALONE, "period_s": 60, "overcommit": 4, "traits": traits}
        async with served(NAP, "least-loaded", **how) as app:
            app.runtime.order(Resize("nap", 1.0))
            for _ in range(2):
                _, future = app.begin("main", 0.1)
                await asyncio.sleep(0.05)
                (instance,) = app.runtime.controller.pool.instances.values()
                assert instance.vcpus == 500  # in thousandths: what it began with
                assert (await future).outcome == "completed"

    run(test)
