"""The same shared weights among ever more functions: trained on, served, and how the time grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.engine import simulate
from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, around, below, decide_all, exact
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, by_seed, measured
from fairlead.experiments.simppo_bench import taught
from fairlead.model import Record
from fairlead.policy import make_policy
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.simppo.checkpoint import Checkpoint, write_checkpoint
from fairlead.report import summarise
from fairlead.report.figure import line_figure
from fairlead.workload import Scenario

if TYPE_CHECKING:
    from fairlead.learn.simppo.plan import Outcome


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Time per control period, in training and in serving, by the number of functions."""
    from fairlead.learn.functions.tenants import tenants_scenario  # noqa: PLC0415 - an extra

    settings = read_settings(__package__)
    sizes: Sequence[int] = settings["quick_functions" if quick else "functions"]
    updates: Mapping[int, int] = settings["quick_more_updates" if quick else "more_updates"]
    first = _first(settings, quick)
    rows: list[dict[str, Any]] = []
    for i, functions in enumerate(sizes):
        progress((i + 0.5) / (len(sizes) + 0.5), f"{functions} functions")
        scenario = tenants_scenario(functions, load=settings["load"])
        began = perf_counter()
        outcome = _go_on(settings, scenario, first, updates[functions])
        trained_s = perf_counter() - began
        served = _serve(scenario, outcome.checkpoint, settings)
        curve = outcome.curve
        rows.append(
            {
                "functions": functions,
                "nodes": len(scenario.cluster.nodes),
                "reward_before": round(float(curve.mean[0]), 4),
                "reward": round(float(curve.mean[-1]), 4),
                "trained_s": round(trained_s, 1),
                "environment_steps_per_s": round(curve.steps / curve.environment_s, 1),
                "environment_agent_steps_per_s": round(functions * curve.steps / curve.environment_s),
                "learner_steps_per_s": round(curve.steps / curve.learner_s, 1),
                **served,
            }
        )
    return Reproduction(
        name="simppo-scale",
        title="SIMPPO: how the time grows with the number of functions",
        rows=tuple(rows),
        figures=_figures(rows),
        notes=(
            "Shared weights, preset modern, global4: trained on twelve functions, then among as many as the row says. "
            "A step is a control period of all functions. Every figure but reward and attainment is measured, and "
            "depends on the machine. `reward_before` is that of the first rollout, `reward` that of the last; neither "
            "is at its end.",
            "Decision: the whole of the scaler's turn in the readable engine: measuring, observing, the networks, and "
            "its actions; the first turn, which starts all replicas, is left out. By the clock on the wall, and "
            "(`decision_cpu_ms`) by the time that the processor spent on it, which other programs do not lengthen.",
        ),
    )


def _first(settings: Mapping[str, Any], quick: bool) -> Checkpoint:
    from fairlead.learn.functions.tenants import tenants_scenario  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - an extra

    episodes = settings["quick_first_episodes" if quick else "first_episodes"]
    scenario = tenants_scenario(12, load=settings["load"])
    return taught(Plan(scenario=scenario, is_shared=True, episodes=episodes, stop=None)).checkpoint


def _go_on(settings: Mapping[str, Any], scenario: Scenario, first: Checkpoint, updates: int) -> Outcome:
    from fairlead.learn.simppo.plan import Plan  # noqa: PLC0415 - an extra
    from fairlead.learn.simppo.settings import MODERN  # noqa: PLC0415 - an extra

    steps = settings["steps"]
    return taught(
        Plan(
            scenario=scenario,
            is_shared=True,
            settings=replace(MODERN, steps=steps, minibatch=min(MODERN.minibatch, steps)),
            episodes=updates,
            periods=steps,
            stop=None,
            seed=settings["seed"],
            first=first,
        )
    )


class _Timed(Policy):
    """A scaler, and how long each of its turns took."""

    def __init__(self, scaler: Policy) -> None:
        self._scaler = scaler
        self.seconds: list[tuple[float, float]] = []  # on the wall, and of the processor

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._scaler.prepare(site, rng)

    def observe(self, record: Record) -> None:
        self._scaler.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        wall_s, cpu_s, actions = 0.0, 0.0, self._scaler.adjust(view)
        while True:  # what the controller does about an action is not the scaler's time
            began, cpu_began = perf_counter(), thread_time()
            action = next(actions, None)
            wall_s, cpu_s = wall_s + perf_counter() - began, cpu_s + thread_time() - cpu_began
            if action is None:
                break
            yield action
        self.seconds.append((wall_s, cpu_s))


def _serve(scenario: Scenario, trained: Checkpoint, settings: Mapping[str, Any]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agents.safetensors"
        write_checkpoint(trained, path)
        scaler = _Timed(make_policy("simppo", {"checkpoint": str(path)}))
        timed = replace(scenario, duration_s=settings["serve_s"], warmup_s=settings["serve_s"] / 3)
        recording = simulate(timed, make_policy("least-loaded"), scaler=scaler, seed=settings["seed"], engine="python")
    wall_ms, cpu_ms = np.array(scaler.seconds[1:]).T * 1000
    return {
        "attainment": round(summarise(recording).slo_attainment or 0.0, 4),
        "turns": len(wall_ms),
        "decision_ms": round(float(np.median(wall_ms)), 2),
        "decision_ms_p95": round(float(np.quantile(wall_ms, 0.95, method="higher")), 2),
        "decision_cpu_ms": round(float(np.median(cpu_ms)), 2),
        "decision_cpu_ms_p95": round(float(np.quantile(cpu_ms, 0.95, method="higher")), 2),
        "turn_ms": round(float(wall_ms.mean()), 2),
        "turn_ms_by_seed": by_seed(wall_ms.tolist(), 2),  # by turn: one run is timed
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """Whether a turn for the most functions is quick enough, over the turns of one run."""
    last, most = rows[-1], read_settings(__package__)["most_decision_ms"]
    turn = measured(last, "turn_ms") if last.get("turn_ms") else around(last["decision_ms"], None)
    yield decide_all(
        f"{last['functions']:,} functions are trained and served, one turn for all",
        f"mean turn, and p95 of this run, less than {most:g} ms",
        [(below(most), turn), (below(most), exact(last["decision_ms_p95"]))],
        paper=f"ours: under {most:g} ms",
        ours=f"median {last['decision_ms']:g} ms, p95 {last['decision_ms_p95']:g} ms",
        kind="own",
        note=f"Of the processor {last['decision_cpu_ms']:g} and {last['decision_cpu_ms_p95']:g} ms.",
    )


def _figures(rows: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    names = {
        "decision_ms": "a turn of the scaler",
        "environment": "a step of the environment",
        "learner": "learning from a step",
    }
    lines = {
        names["decision_ms"]: [(float(row["functions"]), float(row["decision_ms"])) for row in rows],
        "a step of the environment": [(float(row["functions"]), 1000 / row["environment_steps_per_s"]) for row in rows],
        "learning from a step": [(float(row["functions"]), 1000 / row["learner_steps_per_s"]) for row in rows],
    }
    svg = line_figure(
        "Time per control period", lines, x_label="functions", y_label="milliseconds", is_log_x=True, is_log_y=True
    )
    return (Figure(name="growth", title="How the time grows", svg=svg),)
