"""The worlds of the twelve functions as scenario files: `python -m fairlead.learn.functions.files FOLDER`.

To be done again when the functions were measured again; a test says so where it was forgotten.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fairlead.learn.functions.tenants import chains_scenario, tenants_scenario
from fairlead.profile import Profile, ScalingLaw
from fairlead.workload import AzureLike, Scenario

_HEAD = """\
# Written by `python -m fairlead.learn.functions.files FOLDER` from what `fairlead profile` measured of twelve real
# functions (guide: Twelve functions). Times, spread, cold starts and memory are measured; loads and SLOs are ours.
"""


def shipped() -> Mapping[str, Scenario]:
    """The scenarios that have files, by name."""
    return {
        "simppo-12": replace(
            tenants_scenario(name="simppo-12"),
            description="Twelve measured functions that share two nodes of 8 vCPUs, each with a workflow of its own",
        ),
        "simppo-chains": replace(
            chains_scenario(name="simppo-chains"),
            description="Twelve measured functions in four workflows, chains and a diamond, on two nodes of 8 vCPUs",
        ),
    }


def text_of(scenario: Scenario) -> str:
    """A world as the text of a scenario file. Nodes must be equal, and arrivals wander."""
    node = scenario.cluster.nodes[0]
    lines = [
        f"name: {scenario.name}",
        f"description: {scenario.description}",
        f"duration_s: {scenario.duration_s:g}",
        f"control_period_s: {scenario.control_period_s:g}",
        "",
        "cluster:",
        "  nodes:",
        f"    - {{name: {node.kind}, count: {len(scenario.cluster.nodes)}, vcpus: {node.vcpus:g}, "
        f"memory_gb: {node.memory_gb:g}, overcommit: {node.overcommit:g}}}",
        "",
        "functions:",
    ]
    for i, (name, function) in enumerate(scenario.functions.items()):
        profile = scenario.profiles[name]
        lines += [
            f"  {name}:",
            f"    memory_gb: {function.memory_gb}",
            f"    output_mb: {function.output_mb}",
            f"    cold_start_s: {profile.cold_start_s}",
            f"    noise: {profile.noise}",
            f"    latency: {{law: {_law(profile)}}}",
            "    space: *ladder" if i else f"    space: &ladder {{vcpus: [{_vcpus(profile)}]}}",
        ]
    lines += ["", "workflows:"]
    for name, workflow in scenario.workflows.items():
        stages = ", ".join(f"{stage.name}: [{', '.join(stage.after)}]" for stage in workflow.stages)
        lines.append(f"  {name}: {{stages: {{{stages}}}, slo: {{latency_s: {workflow.slo.latency_s}}}}}")
    lines += ["", "arrivals:"]
    for process in scenario.arrivals:
        assert isinstance(process, AzureLike)
        rate = f"rate_rps: {process.rate_rps}, cv: {process.cv:g}"
        lines.append(f"  - {{workflow: {process.workflow}, process: azure-like, {rate}}}")
    lines += ["", f"policy: {{dispatch: {scenario.policy.name}}}"]
    return _HEAD + "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write the file of every scenario that has one."""
    for name, scenario in shipped().items():
        (folder / f"{name}.yaml").write_text(text_of(scenario), encoding="utf-8", newline="\n")


def _law(profile: Profile) -> str:
    law = profile.law
    assert isinstance(law, ScalingLaw)
    return f"{{t1_s: {law.t1_s}, fixed: {law.fixed}, gamma: {law.gamma:g}, threads: {law.threads:g}}}"


def _vcpus(profile: Profile) -> str:
    return ", ".join(f"{configuration.vcpus:g}" for configuration in profile.configurations)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
