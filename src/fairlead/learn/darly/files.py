"""The cluster of Darly as a scenario file: `python -m fairlead.learn.darly.files FOLDER`.

To be done again when the calibration has changed; a test says so where it was forgotten.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from fairlead.learn.darly.cluster import Setting, scenario
from fairlead.learn.darly.schedules import published
from fairlead.model import Node, Stage
from fairlead.profile import Profile, Row, Table
from fairlead.workload import ClosedLoop, PolicyChoice, PressureChange, Scenario

PHASE_S = 1200.0

_HEAD = """\
# Written by `python -m fairlead.learn.darly.files FOLDER` (design note: Darly). Times are fitted to latencies that the
# authors measured; what a call takes of a node, its noise and cold starts are ours. Pressure changes every 20 minutes.
"""


def shipped() -> Mapping[str, Scenario]:
    """The scenarios that have files, by name."""
    changes: list[PressureChange] = []
    now: dict[str, float] = {}
    for number, phase in enumerate(published(1)):
        wanted = dict.fromkeys(now, 0.0) | dict(phase.pressures)
        changes += [
            PressureChange(node=node, at_s=number * PHASE_S, pressure=pressure)
            for node, pressure in sorted(wanted.items())
            if now.get(node, 0.0) != pressure
        ]
        now = wanted
    made = scenario(
        Setting(curves="logs"),
        scaler=PolicyChoice(name="static-placement", parameters={"placement": "*=w01", "replicas": 4}),
        pressures=changes,
        control_period_s=10.0,
        duration_s=5 * PHASE_S,
    )
    description = "A video workflow on four unlike nodes under changing CPU pressure, one video at a time (Darly, 2022)"
    profiles = {name: _rounded(profile) for name, profile in made.profiles.items()}
    return {"darly": replace(made, name="darly", description=description, profiles=profiles)}


def text_of(scenario: Scenario) -> str:
    """A world of this cluster as the text of a scenario file: tables by node, one user in a closed loop."""
    lines = [
        f"name: {scenario.name}",
        f"description: {scenario.description}",
        f"duration_s: {scenario.duration_s:g}",
        f"control_period_s: {scenario.control_period_s:g}",
        "",
        "cluster:",
        "  nodes:",
        *(f"    - {_node(node)}" for node in scenario.cluster.nodes),
        "",
        "functions:",
    ]
    for name, function in scenario.functions.items():
        profile = scenario.profiles[name]
        assert isinstance(profile.law, Table)
        lines += [
            f"  {name}:",
            f"    memory_gb: {function.memory_gb}",
            f"    keep_alive_s: {function.keep_alive_s:g}",
            f"    cold_start_s: {profile.cold_start_s}",
            f"    noise: {profile.noise}",
            f"    overhead_s: {profile.overhead_s}",
            "    latency:",
            "      table:",
            *(f"        - {{kind: {r.kind}, vcpus: {r.vcpus:g}, seconds: {r.seconds}}}" for r in profile.law.rows),
        ]
        if profile.pressure_curves:
            lines.append("    pressure_curves:")
            lines += [f"      {kind}: {[list(p) for p in curve]}" for kind, curve in profile.pressure_curves.items()]
    lines += ["", "workflows:"]
    for name, workflow in scenario.workflows.items():
        lines += [f"  {name}:", "    stages:", *(f"      {_stage(stage)}" for stage in workflow.stages)]
        lines.append(f"    slo: {{latency_s: {workflow.slo.latency_s:g}}}")
    lines += ["", "arrivals:"]
    for process in scenario.arrivals:
        assert isinstance(process, ClosedLoop)
        users = f"users: {process.users}, think_s: {process.think_s:g}, think: {process.think}"
        lines.append(f"  - {{workflow: {process.workflow}, process: closed-loop, {users}}}")
    lines += ["", "pressure:"] if scenario.pressures else []
    lines += [f"  - {{node: {c.node}, at_s: {c.at_s:g}, pressure: {c.pressure:g}}}" for c in scenario.pressures]
    lines += ["", f"policy: {_choice('dispatch', scenario.policy)}"]
    lines += [f"scaler: {_choice('scale', scenario.scaler)}"] if scenario.scaler else []
    return _HEAD + "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write the file of every scenario that has one."""
    for name, made in shipped().items():
        (folder / f"{name}.yaml").write_text(text_of(made), encoding="utf-8", newline="\n")


def _rounded(profile: Profile) -> Profile:
    """With times to a tenth of a millisecond, for a file that people read."""
    assert isinstance(profile.law, Table)
    rows = [Row(seconds=round(row.seconds, 4), vcpus=row.vcpus, kind=row.kind) for row in profile.law.rows]
    return msgspec.structs.replace(profile, law=Table(tuple(rows)), overhead_s=round(profile.overhead_s, 4))


def _node(node: Node) -> str:
    size = f"vcpus: {node.vcpus:g}, memory_gb: {node.memory_gb:g}, overcommit: {node.overcommit:g}"
    return f"{{name: {node.name}, kind: {node.kind}, {size}}}"


def _stage(stage: Stage) -> str:
    parts = [f"after: [{', '.join(stage.after)}]"]
    if stage.map is not None:
        parts.append(f"map: {list(stage.map)}")
    if stage.when is not None:
        parts.append(f"when: {stage.when}")
    if stage.join:
        parts.append("join: true")
    return f"{stage.name}: {{{', '.join(parts)}}}"


def _choice(key: str, choice: PolicyChoice) -> str:
    values = [f'"{v}"' if isinstance(v, str) else f"{v}" for v in choice.parameters.values()]
    own = "".join(f", {name}: {value}" for name, value in zip(choice.parameters, values, strict=True))
    return f"{{{key}: {choice.name}{own}}}"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
