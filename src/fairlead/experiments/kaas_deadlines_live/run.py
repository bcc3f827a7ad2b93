"""Every policy at every rate on a real gateway, once with what loads were measured to take and once without."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import polars as pl

from fairlead.app.scenario import place_of_profile
from fairlead.experiments.cases import Progress, Settings, read_settings
from fairlead.experiments.claims import Claim, above, at_most, decide
from fairlead.experiments.kaas_clients import client_of
from fairlead.experiments.live_bench import busy_share, serving, status_of
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Rows, columns, difference, measured, select
from fairlead.load import Call, LoadResult, Open, Plan, run_load
from fairlead.profile.measured import read_measured, write_measured
from fairlead.report.live import read_live_run

KNOWS, IGNORES = "knows", "ignores"
_APP = "from fairlead.experiments.kaas_deadlines_live.app import app\n"
_CALLS = 100  # among which the plan's requests are drawn, each as likely as the others
_FIGURES = {"goodput_rps": 2, "refused": 5, "late": 5, "broken": 5, "cold": 4, "p50_ms": 1, "p99_ms": 1}
_MOST_LOAD_GB_PER_S = 1e9  # of a device that is believed to load at once


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Profile the app; then every policy and belief on a gateway of its own, at every rate and with every seed."""
    settings = read_settings(__package__)
    seeds, rates = settings["quick_seeds" if quick else "seeds"], dict(settings["rates"])
    if quick:
        rates = {name: rates[name] for name in settings["quick_rates"]}
    rows = []
    with TemporaryDirectory(prefix="fairlead-kaas-deadlines-") as name, busy_share() as busy:
        folder = Path(name)
        apps = profiled(settings, folder)
        told = _told(apps[KNOWS])
        gateways = [(policy, loads) for policy in settings["policies"] for loads in (KNOWS, IGNORES)]
        for i, (policy, loads) in enumerate(gateways):
            place = folder / str(i)
            place.mkdir()
            found = serve(settings, apps[loads], place, policy, rates, seeds)
            for rate, runs in found.items():
                row: dict[str, object] = {"policy": policy, "rate": rate, "rate_rps": rates[rate], "loads": loads}
                for figure, digits in _FIGURES.items():
                    row |= columns(figure, [one[figure] for one in runs], digits)
                rows.append(row)
            progress((i + 1) / len(gateways), f"{policy}, {loads} loads")
    return Reproduction(
        name="kaas-deadlines-live",
        title="Deadlines on workflows of CPU functions and kernels, live on two devices under a cap that evicts",
        rows=tuple(rows),
        notes=(
            f"Measured: seeds {seeds}, {settings['seconds']:g} s of Poisson arrivals each, after "
            f"{settings['warm_up_s']:g} s that do not count. {told} The CPUs were in use for {busy[0]:.0%} of the "
            "time.",
            "late: answered to the client after the deadline. broken: late, or dropped after it was admitted. Both are "
            "shares of the admitted requests; answers in time are counted against all.",
        ),
    )


def profiled(settings: Settings, folder: Path) -> dict[str, Path]:
    """The app twice: with its measured profile, and with one in which devices start and load at once."""
    knows, ignores = (folder / loads / "app.py" for loads in (KNOWS, IGNORES))
    for file in (knows, ignores):
        file.parent.mkdir()
        file.write_text(_APP)
    environment = {**os.environ, **settings["devices"]["environment"]}
    command = [sys.executable, "-m", "fairlead", "profile", str(knows), "--budget", settings["profile"], "--quiet"]
    subprocess.run(command, check=True, env=environment)
    measured = read_measured(place_of_profile(knows))
    at_once = {
        name: msgspec.structs.replace(device, load_gb_per_s=_MOST_LOAD_GB_PER_S, allocation_s=0.0, executor_start_s=0.0)
        for name, device in measured.devices.items()
    }
    functions = {
        name: msgspec.structs.replace(one, cold_start=None) if name.startswith("model-") else one
        for name, one in measured.functions.items()
    }
    blind = msgspec.structs.replace(measured, devices=at_once, functions=functions)
    write_measured(blind, place_of_profile(ignores))
    return {KNOWS: knows, IGNORES: ignores}


def serve(
    settings: Settings, app: Path, folder: Path, policy: str, rates: Mapping[str, float], seeds: Sequence[int]
) -> dict[str, list[dict[str, float]]]:
    """The figures at each rate, seed by seed: as the client saw it, and what the records say of refusals and loads."""
    options = ["--policy", policy, "--drain", "10s"]
    loads = []
    with serving(app, folder / "state", options, settings["devices"]["environment"]) as address:
        for seed in seeds:
            for rate, rate_rps in rates.items():
                begin = status_of(address).uptime_s + settings["warm_up_s"]
                result = run_load(f"http://{address}", plan_of(settings, rate_rps, seed))
                loads.append((rate, begin, status_of(address).uptime_s, result))
    recording = read_live_run(folder / "state" / "runs" / "1")
    found: dict[str, list[dict[str, float]]] = {rate: [] for rate in rates}
    for rate, begin, end, result in loads:
        asked = recording.requests.filter(pl.col("arrival").is_between(begin, end))
        runs = recording.invocations.filter(pl.col("start").is_between(begin, end))
        runs = runs.filter((pl.col("device") >= 0) & (pl.col("outcome") == "done"))
        cold = runs.filter(pl.col("cold_s") > 0).height / max(1, runs.height)
        found[rate].append(figures(result, asked.filter(pl.col("outcome") == "rejected").height, cold))
    return found


def plan_of(settings: Settings, rate_rps: float, seed: int) -> Plan:
    """One load; the app's own objectives hold."""
    return Plan(
        arrivals=Open(rate_rps=rate_rps, seed=seed),
        duration_s=settings["warm_up_s"] + settings["seconds"],
        warm_up_s=settings["warm_up_s"],
        sends_deadline=False,
        calls=calls_of(settings),
        mix="random",
        mix_seed=seed,
    )


def figures(result: LoadResult, rejected: int, cold: float) -> dict[str, float]:
    """Answers in time per second, and shares: `late` and `broken` of the admitted requests, `refused` of all."""
    admitted = max(1, result.offered - rejected)
    return {
        "goodput_rps": result.goodput_rps,
        "refused": rejected / result.offered,
        "late": (result.answered - result.in_time) / admitted,
        "broken": (admitted - result.in_time) / admitted,
        "cold": cold,
        "p50_ms": 1000 * (result.latency.p50_s or 0.0),
        "p99_ms": 1000 * (result.latency.p99_s or 0.0),
    }


def calls_of(settings: Settings) -> tuple[Call, ...]:
    """A hundred calls, of which each workflow has its share."""
    (value,) = client_of(settings["model"], 0).inputs.values()
    body = json.dumps({"input": value.tolist()}).encode()
    weights = [(i + 1) ** -settings["skew"] for i in range(settings["models"])]
    pairs = round(_CALLS * settings["pair_share"])
    shares = [round((_CALLS - pairs) * weight / sum(weights)) for weight in weights]
    named = [(f"ask-{i + 1}", settings["slo_s"], count) for i, count in enumerate(shares)]
    named.append(("pair", settings["pair_slo_s"], pairs))
    return tuple(
        Call(name=name, path=f"/v1/workflows/{name}", body=body, deadline_s=slo_s)
        for name, slo_s, count in named
        for _ in range(count)
    )


def _told(app: Path) -> str:
    found = read_measured(place_of_profile(app))
    device = next(iter(found.devices.values()))
    run_s = found.functions["model-1"].points[0].mean_s
    return f"Profile: a model runs {1000 * run_s:.1f} ms, and devices load {device.load_gb_per_s:.1f} GB/s."


def judge(rows: Rows) -> Iterator[Claim]:
    """Promises are kept, and knowing of loads yields more answers in time."""
    settings = read_settings(__package__)
    for policy in dict.fromkeys(row["policy"] for row in rows):
        knows = select(rows, policy=policy, loads=KNOWS)
        yield decide(
            f"{policy}: admitted requests that are late",
            at_most(settings["most_late"], f"at most {settings['most_late']:.0%} of the admitted, at every rate"),
            *(measured(row, "late") for row in knows),
            paper="left open (UCB/EECS-2022-88)",
            ours={row["rate"]: measured(row, "late").text(2, 100) + " %" for row in knows},
            kind="own",
        )
        for row in knows:
            (other,) = select(rows, policy=policy, loads=IGNORES, rate=row["rate"])
            yield decide(
                f"{policy}, {row['rate']}: answers in time with knowledge of loads over those without",
                above(0, "more, seed by seed"),
                difference(row, other, "goodput_rps"),
                paper="left open (UCB/EECS-2022-88)",
                ours=" against ".join(measured(one, "goodput_rps").text() for one in (row, other)) + " per second",
                kind="own",
            )
