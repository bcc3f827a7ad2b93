"""Two tenants on one node of two vCPUs, each offered three times what the node can do: what does sharing cost?

The same two-stage workflow is served alone, twice as two apps (which share the node by leases), and twice as two
workflows of one app (one controller for both). Stages sleep, so that the node's vCPUs are what is short, not the cores
of this machine. Runs are interleaved; medians count. The exit code is 1 if one of the two apps has less than 45 % of
the goodput of the app alone.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from textwrap import dedent

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the load generator is this checkout's

from processes import StartError, adopt_orphans, serving
from rows import settle

from fairlead.load import LoadResult, Open, Plan, run_load

SOURCE = Path(__file__).resolve().parents[2] / "src"
STAGES_S = (0.025, 0.075)
VCPUS = 2
CAPACITY_RPS = VCPUS / sum(STAGES_S)
DEADLINE_S = 1.0
LOAD = 3.0
GATE = 0.45

HEAD = """
from time import sleep
from fairlead import App
app = App({app!r})
app.node("shared", vcpus={vcpus})
"""
WORKFLOW = """
@app.function()
def look_{name}(value: int) -> int:
    sleep({first})
    return value

@app.function()
def work_{name}(value: int) -> int:
    sleep({second})
    return value

app.workflow("{name}", look_{name} >> work_{name}, slo="1s", example=1)
"""

SETTINGS: Mapping[str, Mapping[str, Sequence[str]]] = {  # apps, each with its workflows
    "alone": {"one": ["first"]},
    "two apps": {"one": ["first"], "two": ["second"]},
    "one app": {"both": ["first", "second"]},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run, after two of warm-up")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each setting")
    parser.add_argument("--policy", metavar="NAME", help="instead of the default")
    options = parser.parse_args()
    adopt_orphans()
    goodput: dict[str, list[list[float]]] = {name: [] for name in SETTINGS}
    for number in range(options.repeat):
        for name in SETTINGS if number % 2 == 0 else reversed(SETTINGS):
            found = serve(SETTINGS[name], options.seconds, options.policy)
            goodput[name].append([one.goodput_rps for one in found])
            shown = ", ".join(f"{one.goodput_rps:.1f}/s (p50 {(one.latency.p50_s or 0) * 1e3:.0f} ms)" for one in found)
            print(f"[{number + 1}] {name:9} {shown}", file=sys.stderr, flush=True)
    return report(goodput)


def serve(apps: Mapping[str, Sequence[str]], seconds: float, policy: str | None) -> list[LoadResult]:
    """One run: every workflow of these apps is offered three times what the node can do."""
    with tempfile.TemporaryDirectory(prefix="fl-sharing-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        files = [write_app(folder, app, workflows) for app, workflows in apps.items()]
        command = [sys.executable, "-m", "fairlead", "serve", *map(str, files), "--port", "0"]
        command += ["--state", str(folder / "state"), "--limits", "affinity"]
        command += ["--policy", policy] if policy else []
        with serving(command, folder / "server.log", {"PYTHONPATH": str(SOURCE)}) as url:
            targets = [f"{url.rstrip('/')}/v1/workflows/{each}" for names in apps.values() for each in names]
            for target in targets:
                settle(target)
            with ThreadPoolExecutor(len(targets)) as pool:
                loads = [pool.submit(run_load, target, plan(seed, seconds)) for seed, target in enumerate(targets)]
                return [load.result() for load in loads]


def write_app(folder: Path, app: str, workflows: Sequence[str]) -> Path:
    first, second = STAGES_S
    parts = [HEAD.format(app=app, vcpus=VCPUS)]
    parts += [WORKFLOW.format(name=name, first=first, second=second) for name in workflows]
    file = folder / f"{app}.py"
    file.write_text(dedent("".join(parts)), encoding="utf-8")
    return file


def plan(seed: int, seconds: float) -> Plan:
    return Plan(
        arrivals=Open(rate_rps=LOAD * CAPACITY_RPS, seed=seed),
        duration_s=seconds,
        warm_up_s=2.0,
        deadline_s=DEADLINE_S,
        body=b'{"input":1}',
        timeout_s=10.0,
        max_in_flight=1500,
    )


def report(goodput: Mapping[str, Sequence[Sequence[float]]]) -> int:
    """Print the table and the verdict; 1 if the gate is missed."""
    alone = median(one for (one,) in goodput["alone"])
    print(f"The node can do {CAPACITY_RPS:.0f}/s; each tenant is offered {LOAD * CAPACITY_RPS:.0f}/s.\n")
    print(
        "| setting | goodput of each, medians | lowest to highest | of one alone | together |\n|---|---|---:|---|---:|"
    )
    for name, runs in goodput.items():
        each = [median(values) for values in zip(*runs, strict=True)]
        values = sorted(value for run in runs for value in run)
        total = median(sum(run) for run in runs)
        shown = " and ".join(f"{one:.1f}/s" for one in each)
        shares = " and ".join(f"{one / alone:.0%}" for one in each)
        print(f"| {name} | {shown} | {values[0]:.1f} to {values[-1]:.1f} | {shares} | {total:.1f}/s |")
    least = min(median(values) for values in zip(*goodput["two apps"], strict=True)) / alone
    verdict = "met" if least >= GATE else "MISSED"
    print(f"\n- the worse of two apps has {least:.1%} of one alone, asked {GATE:.0%}: {verdict}")
    shared = median(sum(run) for run in goodput["two apps"])
    together = median(sum(run) for run in goodput["one app"])
    print(f"- both apps together have {shared / together:.1%} of what one app with both workflows has")
    return int(least < GATE)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StartError as error:
        sys.exit(str(error))
