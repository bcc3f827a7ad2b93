"""One number of queue-workers, served for real: every workflow asked in turn, and what each request took for what."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import msgspec
import polars as pl
import yaml

from fairlead.calibrate.serving import Gateway
from fairlead.errors import FairleadError
from fairlead.experiments.granularity_live.parts import Call, calls_of
from fairlead.experiments.granularity_live.s3 import Bucket
from fairlead.experiments.live_bench import busy_share, serving
from fairlead.experiments.video_bench import ask
from fairlead.report.live import read_live_run

_LIMIT_S = 280.0
_BUSY_LOOK_S = 2.0
_APP = Path(__file__).with_name("app.py")


class Cell(msgspec.Struct, frozen=True):
    """What is asked for: a version, and how its frames pass."""

    version: int
    passing: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One counted request: its latency as the client saw it, its calls, and CPU time of gateway and store."""

    cell: Cell
    workers: int
    frames: int
    repeat: int
    latency_s: float
    calls: Sequence[Call]
    gateway_cpu_s: float
    store_cpu_s: float
    differences: Sequence[str]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The counted requests of one session, and the share of the cores' time that was in use before it, so by others."""

    asked: Mapping[str, Any]
    taken: Sequence[Taken]
    busy_before: float


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    cell: Cell
    repeat: int | None  # None: not counted
    latency_s: float
    gateway_cpu_s: float
    store_cpu_s: float
    spent: Sequence[Mapping[str, Any]]
    differences: Sequence[str]


def cells_of(settings: Mapping[str, Any], session: Mapping[str, Any]) -> list[Cell]:
    """Every version with every way of passing; the one without a queue only where there is one worker."""
    versions = session.get("versions", settings["versions"])
    found = [Cell(version, passing) for version, passing in product(versions, settings["passing"])]
    return found if session["workers"] == 1 else [cell for cell in found if cell.version != 4]


def in_turn(cells: Sequence[Cell], repeat: int) -> list[Cell]:
    """The cells from another one on in each repeat: what the machine does besides must not always hit the same."""
    at = repeat % len(cells)
    return [*cells[at:], *cells[:at]]


def serve_and_ask(
    folder: Path,
    settings: Mapping[str, Any],
    session: Mapping[str, Any],
    store: Bucket,
    on_answer: Callable[[str], None],
) -> Session:
    """All requests of a session."""
    from fairlead.video.clip import check_labels  # noqa: PLC0415 - needs OpenCV, which is optional

    state = folder / "state"
    nodes = folder / "nodes.yaml"
    nodes.write_text(yaml.safe_dump({"nodes": settings["nodes"]}), encoding="utf-8")
    options = ["--nodes", str(nodes), "--policy", "queue-workers", "--no-warm-up", "--drain", "1s"]
    options += ["--set", f"policy.workers={session['workers']}"]
    cells = cells_of(settings, session)
    order: list[tuple[int | None, Cell]] = [(None, cell) for _ in range(settings["warm_up"]) for cell in cells]
    order += [(repeat, cell) for repeat in range(session["repeats"]) for cell in in_turn(cells, repeat)]
    answers = []
    before = _busy_before()
    with serving(_APP, state, options, {"FAIRLEAD_STORE": store.url, **store.environment}) as address:
        gateway = Gateway(address, msgspec.json.decode((state / "gateway.json").read_bytes())["pid"], state)
        for repeat, cell in order:
            used = gateway.cpu_s(), _cpu_s(store.pid)
            began = perf_counter()
            answer = ask(address, session["frames"], _LIMIT_S, workflow_of(cell))
            latency_s = perf_counter() - began
            if answer is None:
                raise FairleadError(f"Version {cell.version} has not answered within {_LIMIT_S:g} s.")
            answers.append(
                _Answer(
                    cell=cell,
                    repeat=repeat,
                    latency_s=latency_s,
                    gateway_cpu_s=gateway.cpu_s() - used[0],
                    store_cpu_s=_cpu_s(store.pid) - used[1],
                    spent=answer["spent"],
                    differences=check_labels(answer),
                )
            )
            on_answer(f"{session['workers']} worker(s), version {cell.version}, {cell.passing}")
    recording = read_live_run(state / "runs" / "1")
    taken = _joined(answers, recording.requests, recording.invocations, session)
    return Session(asked=session, taken=taken, busy_before=before)


def workflow_of(cell: Cell) -> str:
    """What the app calls it."""
    return f"version-{cell.version}-{cell.passing}"


def _joined(
    answers: Sequence[_Answer], requests: pl.DataFrame, invocations: pl.DataFrame, session: Mapping[str, Any]
) -> list[Taken]:
    """Answers with the calls that the gateway recorded of them: one client asked, so both are in the same order."""
    ids = requests.sort("arrival")["request"].to_list()
    by_request = invocations.filter(pl.col("outcome") == "done").partition_by("request", as_dict=True)
    return [
        Taken(
            cell=one.cell,
            workers=session["workers"],
            frames=session["frames"],
            repeat=one.repeat,
            latency_s=one.latency_s,
            calls=calls_of(by_request[id,].to_dicts(), one.spent, "-store" if one.cell.passing == "store" else ""),
            gateway_cpu_s=one.gateway_cpu_s,
            store_cpu_s=one.store_cpu_s,
            differences=one.differences,
        )
        for id, one in zip(ids, answers, strict=True)
        if one.repeat is not None
    ]


def _busy_before() -> float:
    with busy_share() as share:
        sleep(_BUSY_LOOK_S)
    return share[0]


def _cpu_s(pid: int) -> float:
    """CPU time of a process and its threads, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
