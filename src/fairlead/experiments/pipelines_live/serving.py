"""The variants served for real: one client that takes turns between them, and loads that keep the machine busy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import polars as pl
import yaml

from fairlead.errors import FairleadError
from fairlead.experiments.live_bench import serving, status_of
from fairlead.experiments.pipelines_live.asking import Client, Digit, ask_all
from fairlead.load import Closed, Plan, run_load
from fairlead.report.live import read_live_run

PIPELINES = ("ensemble", "cascade")
_APP = Path(__file__).with_name("variants.py")
_TIMEOUT_S = 30.0

OnDone = Callable[[str], None]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of one variant with one client: the latency of every request, and the digits that were read."""

    pipeline: str
    variant: str
    repeat: int
    latency_s: Sequence[float]
    read: Sequence[int]


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """One repeat of one workflow under load. `batch` is the mean over its models' calls; None where it was not read."""

    pipeline: str
    variant: str
    repeat: int
    answers_rps: float
    mean_s: float
    p99_s: float
    failed: int
    batch: float | None = None


def variants_of(pipeline: str) -> list[str]:
    """How a pipeline is run: as a graph, by a client in turn, with competing copies and, where it can be, fused."""
    found = ["graph", "in-turn", "compete"]
    return [*found, "fused"] if pipeline == "cascade" else found


def drawn(digits: Sequence[Digit], count: int, seed: int) -> list[Digit]:
    """So many of them, none twice."""
    rng = np.random.default_rng(seed)
    return [digits[i] for i in rng.choice(len(digits), min(count, len(digits)), replace=False)]


@contextmanager
def served(folder: Path, settings: Mapping[str, Any], part: str) -> Iterator[str]:
    """The variants, on the nodes of a part of the experiment."""
    nodes = folder / f"{part}.yaml"
    nodes.write_text(yaml.safe_dump({"nodes": settings[part]["nodes"]}), encoding="utf-8")
    options = ["--nodes", str(nodes), "--policy", settings["dispatcher"], "--drain", "1s"]
    options += ["--set", f"policy.batching={settings['batching']}"]
    with serving(_APP, folder / part, options) as address:
        yield address


def ask_in_turn(
    address: str,
    shipped: ModuleType,
    settings: Mapping[str, Any],
    digits: Sequence[Digit],
    *,
    quick: bool,
    done: OnDone,
) -> list[Asked]:
    """Every variant of both pipelines, repeat by repeat, from another one on each time."""
    part = settings["latency"]
    repeats, requests = (part[f"quick_{key}" if quick else key] for key in ("repeats", "requests"))
    variants = [(pipeline, variant) for pipeline in PIPELINES for variant in variants_of(pipeline)]
    client = Client(address)
    found = []
    try:
        for pipeline, variant in variants:
            ask_all(client, shipped, pipeline, variant, digits[: part["warm_up"]])
        for repeat in range(repeats):
            chosen = drawn(digits, requests, settings["seed"] + repeat)
            at = repeat % len(variants)
            for pipeline, variant in [*variants[at:], *variants[:at]]:
                took, read = ask_all(client, shipped, pipeline, variant, chosen)
                found.append(Asked(pipeline=pipeline, variant=variant, repeat=repeat, latency_s=took, read=read))
                done(f"{pipeline}, {variant}, one client")
    finally:
        client.close()
    return found


def load_in_turn(
    address: str, settings: Mapping[str, Any], part: str, digits: Sequence[Digit], *, quick: bool, done: OnDone
) -> tuple[list[Loaded], list[tuple[float, float]]]:
    """Closed loops on every workflow of a part; and from when to when on the gateway's clock each of them ran."""
    own = settings[part]
    repeats, duration_s = (own[f"quick_{key}" if quick else key] for key in ("repeats", "duration_s"))
    bodies = tuple(msgspec.json.encode({"input": digit}) for digit in digits)
    names = loaded_variants(settings, part)
    found, spans = [], []
    for repeat in range(-1, repeats):  # the first turn is not counted: instances start in it
        at = repeat % len(names)
        for pipeline, variant in [*names[at:], *names[:at]]:
            plan = Plan(
                arrivals=Closed(own["users"]),
                duration_s=duration_s,
                warm_up_s=own["warm_up_s"],
                body=bodies,
                headers=(("content-type", "application/json"),),
                timeout_s=_TIMEOUT_S,
            )
            begin = status_of(address).uptime_s
            result = run_load(f"http://{address}/v1/workflows/{pipeline}-{variant}", plan)
            if repeat < 0:
                continue
            spans.append((begin, status_of(address).uptime_s))
            if not result.answered:
                raise FairleadError(
                    f"{pipeline}-{variant} has not answered under load: {result.errors or result.refused}."
                )
            assert result.latency.p99_s is not None
            found.append(
                Loaded(
                    pipeline=pipeline,
                    variant=variant,
                    repeat=repeat,
                    answers_rps=result.answered_rps,
                    mean_s=own["users"] / result.answered_rps,  # Little's law: each user waits, and then asks again
                    p99_s=result.latency.p99_s,
                    failed=result.offered - result.answered,
                )
            )
            done(f"{pipeline}, {variant}, {own['users']} clients")
    return found, spans


def loaded_variants(settings: Mapping[str, Any], part: str) -> list[tuple[str, str]]:
    """The workflows of a part, as pipeline and variant."""
    if part == "busy":
        return [(name, variant) for name in PIPELINES for variant in variants_of(name) if variant != "in-turn"]
    return [(name, f"batch-{size}") for size in settings[part]["batches"] for name in PIPELINES]


def with_batches(loaded: Sequence[Loaded], spans: Sequence[tuple[float, float]], state: Path) -> list[Loaded]:
    """What was loaded, each with the mean size of the batches in which its models' calls ran."""
    calls = read_live_run(state / "runs" / "1").invocations.filter(pl.col("outcome") == "done")
    found = []
    for one, (begin, end) in zip(loaded, spans, strict=True):
        size = one.variant.removeprefix("batch-")
        mine = calls.filter(
            pl.col("start").is_between(begin, end),
            pl.col("workflow") == f"{one.pipeline}-{one.variant}",
            pl.col("function").str.ends_with(f"-{size}"),
        )
        batches = mine.unique("batch")["batch_size"].mean()
        found.append(msgspec.structs.replace(one, batch=None if batches is None else float(str(batches))))
    return found
