"""What the requests come to: rows, and claims."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import Claim, Measured, above, below, between, decide, exact, fact, paired_ratio
from fairlead.experiments.granularity_live.parts import PARTS, parts_of
from fairlead.experiments.granularity_live.serving import Taken
from fairlead.experiments.rows import Row, Rows, columns, difference, measured, quotient, select, values_of

BUSY = 0.25
"""Share of all cores' time in use by others from which on a live comparison says little."""

_DIGITS = 4


def rows_of(taken: Sequence[Taken], busy_before: Mapping[int, float]) -> list[dict[str, object]]:
    """One row per version, way of passing, workers and frames, with every repeat; and one per function of it."""
    groups: dict[tuple[int, str, int, int], list[Taken]] = {}
    for one in taken:
        groups.setdefault((one.cell.version, one.cell.passing, one.workers, one.frames), []).append(one)
    found = []
    for (version, passing, workers, frames), own in groups.items():
        head = {"version": version, "passing": passing, "workers": workers, "frames": frames}
        found.append({"part": "request", **head, **_request(own), "busy_before": round(busy_before[workers], 3)})
        found += [{"part": "function", **head, **one} for one in _functions(own)]
    return sorted(found, key=lambda row: row["part"] == "function")


def _request(own: Sequence[Taken]) -> dict[str, object]:
    parts = [parts_of(one.latency_s, one.calls) for one in own]
    waits = [call.wait_s for one in own for call in one.calls if call.is_mapped]
    found = columns("latency_s", [one.latency_s for one in own], _DIGITS)
    for part in PARTS:
        found |= columns(f"{part}_s", [each[part] for each in parts], _DIGITS)
    return {
        **found,
        "cpu_s": round(fmean(sum(call.cpu_s for call in one.calls) for one in own), 3),
        "gateway_cpu_s": round(fmean(one.gateway_cpu_s for one in own), 4),
        "store_cpu_s": round(fmean(one.store_cpu_s for one in own), 3),
        "wait_s": round(fmean(waits), 3) if waits else None,
        "calls": round(fmean(len(one.calls) for one in own), 1),
        "cold_calls": sum(call.cold_s > 0 for one in own for call in one.calls),
        "wrong_labels": sum(len(one.differences) for one in own),
    }


def _functions(own: Sequence[Taken]) -> Iterator[dict[str, object]]:
    """Means per call, in milliseconds."""
    calls = [call for one in own for call in one.calls]
    for function in dict.fromkeys(call.function for call in calls):
        mine = [call for call in calls if call.function == function]
        times = ("run_s", "get_s", "put_s", "hop_s", "wait_s", "cpu_s")
        means = {f"{name[:-2]}_ms": round(1e3 * fmean(getattr(call, name) for call in mine), 2) for name in times}
        yield {"function": function, "calls": round(len(mine) / len(own), 1), **means}


# --- claims ---------------------------------------------------------------------------------------------------------


def judge(rows: Rows) -> Iterator[Claim]:
    """What the thesis prints and ours, and what the parts say; the rules are those of experiment.yaml."""
    settings = read_settings(__package__)
    requests = select(rows, part="request")
    note = _busy_note(requests)
    yield _labels(requests)
    frames = max(row["frames"] for row in requests)
    for runtime in settings["printed"]["saved"]:
        yield _saved(settings, requests, frames, runtime, note)
    usual = min(row["frames"] for row in requests)
    yield _quickest(settings, requests, usual, note)
    yield from _workers(settings, requests, usual, note)
    yield _store(settings, requests, frames, note)


def at(rows: Rows, version: int, passing: str, workers: int, frames: int) -> Row:
    """The row of all requests of a kind."""
    (found,) = select(rows, version=version, passing=passing, workers=workers, frames=frames)
    return found


def saved(rows: Rows, passing: str, frames: int) -> Measured:
    """What version 4 takes less than version 1, with one worker, as a share of version 1's time."""
    five, one = (at(rows, version, passing, 1, frames) for version in (1, 4))
    return exact(1).minus(quotient(one, five, "latency_s"))


def _labels(rows: Rows) -> Claim:
    wrong, cold = (sum(row[key] for row in rows) for key in ("wrong_labels", "cold_calls"))
    return fact(
        "Every answer has the labels that were noted by looking at the clip, and no counted call waited for a start",
        "no difference, no cold start",
        wrong == cold == 0,
        paper="required of a run",
        ours={"differences": wrong, "cold starts": cold},
        kind="own",
    )


def _saved(settings: Mapping[str, Any], rows: Rows, frames: int, runtime: str, note: str | None) -> Claim:
    printed, most = settings["printed"], settings["most_points"]
    seconds = printed["seconds"][runtime]
    theirs = printed["saved"][runtime] if frames == printed["frames"] else 1 - seconds[4][frames] / seconds[1][frames]
    ours = saved(rows, "store", frames)
    per_frame_s = (seconds[1][frames] - seconds[4][frames]) / frames
    five, one = (at(rows, version, "store", 1, frames) for version in (1, 4))
    own_s = difference(five, one, "latency_s")
    why = (
        f"In seconds per frame the thesis's five functions take {per_frame_s:.3f} more than its one under this "
        f"runtime, on w01; ours {own_s.text(4, 1 / frames)}. There calls went through OpenFaaS's queue and gateway, "
        "here to processes that wait for them; what ours is made of is told below."
    )
    return decide(
        f"Version 4 takes so much less time than version 1: {frames} frames, store, one queue-worker ({runtime})",
        between(theirs - most, theirs + most, f"within {100 * most:g} points of the printed"),
        ours,
        paper=f"{theirs:.1%}",
        ours=f"{ours.mean:.1%}",
        note=f"{why} {note}" if note else why,
    )


def _quickest(settings: Mapping[str, Any], rows: Rows, frames: int, note: str | None) -> Claim:
    theirs = settings["printed"]["seconds"]["faas-flow"]
    own = {version: at(rows, version, "store", 1, frames) for version in settings["versions"]}
    return decide(
        f"Version 4 is the quickest of the four: {frames} frames, store, one queue-worker",
        below(0, "quicker than each, repeat by repeat"),
        *(difference(own[4], own[version], "latency_s") for version in (1, 2, 3)),
        paper=" / ".join(f"{theirs[version][frames]:g}" for version in own) + " s (faas-flow)",
        ours=" / ".join(f"{row['latency_s']:.2f}" for row in own.values()) + " s",
        note=note,
    )


def _workers(settings: Mapping[str, Any], rows: Rows, frames: int, note: str | None) -> Iterator[Claim]:
    theirs = settings["printed"]["workers"][frames]
    one = at(rows, 1, "store", 1, frames)
    ks = sorted({row["workers"] for row in rows if row["frames"] == frames} - {1})
    for workers in ks:
        more = at(rows, 1, "store", workers, frames)
        gain = exact(1).minus(measured(more, "latency_s").over(measured(one, "latency_s")))
        yield decide(
            f"{workers} queue-workers instead of one make version 1 quicker: {frames} frames, store",
            above(0, "a positive share of the slower time"),
            gain,
            paper=f"{1 - theirs[workers] / theirs[1]:.1%}",
            ours=f"{gain.mean:.1%} ({one['latency_s']:.2f} to {more['latency_s']:.2f} s)",
            note=note,
        )
    if ks and theirs[ks[-1]] < settings["printed"]["seconds"]["custom"][4][frames]:
        split, whole = at(rows, 1, "store", ks[-1], frames), at(rows, 4, "store", 1, frames)
        yield decide(
            f"With {ks[-1]} queue-workers version 1 is quicker than version 4: {frames} frames, store",
            below(0, "quicker"),
            measured(split, "latency_s").minus(measured(whole, "latency_s")),
            paper=f"{theirs[ks[-1]]:g} and {settings['printed']['seconds']['custom'][4][frames]:g} s",
            ours=f"{split['latency_s']:.2f} and {whole['latency_s']:.2f} s",
            note=note,
        )


def _store(settings: Mapping[str, Any], rows: Rows, frames: int, note: str | None) -> Claim:
    five, one = (at(rows, version, "store", 1, frames) for version in (1, 4))
    more = _apart(five, one, ("latency",))
    in_store = paired_ratio(_apart(five, one, ("get", "put")), more)
    bar = settings["store_share"]
    return decide(
        f"Getting and putting is most of what five functions take more than one: {frames} frames, one queue-worker",
        above(bar, f"more than {bar:.0%} of the difference between versions 1 and 4"),
        in_store,
        paper="not published",
        ours=f"{in_store.mean:.0%} of {fmean(more):.2f} s",
        kind="own",
        note=note,
    )


def _apart(row: Row, other: Row, parts: Sequence[str]) -> list[float]:
    """Repeat by repeat, how much more of these parts one row has."""
    own, others = ([values_of(each, f"{part}_s") for part in parts] for each in (row, other))
    return [sum(a) - sum(b) for a, b in zip(zip(*own, strict=True), zip(*others, strict=True), strict=True)]


def _busy_note(rows: Rows) -> str | None:
    busy = max(row["busy_before"] for row in rows)
    if busy <= BUSY:
        return None
    return f"Of all cores' time up to {busy:.0%} was in use before the requests: others worked, and this says little."
