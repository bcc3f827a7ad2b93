"""What the requests come to: rows, and claims."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import Claim, above, below, decide, exact, fact, within
from fairlead.experiments.pipelines_live.serving import PIPELINES, Asked, Loaded
from fairlead.experiments.rows import Row, Rows, columns, difference, pick, quotient, select

LIGHT, BUSY, BATCHES = "one client", "busy", "batches"
_NAMES = {"latency_ms": "the mean latency", "p99_ms": "the 99th percentile"}
_BUSY_SHARE = 0.25


def rows_of(asked: Sequence[Asked], busy: Sequence[Loaded], batched: Sequence[Loaded]) -> list[dict[str, object]]:
    """One row per variant, with every repeat."""
    right = {(one.pipeline, one.repeat): one.read for one in asked if one.variant == "graph"}
    found: list[dict[str, object]] = []
    for pipeline, variant in dict.fromkeys((one.pipeline, one.variant) for one in asked):
        own = [one for one in asked if (one.pipeline, one.variant) == (pipeline, variant)]
        found.append(
            {
                "part": LIGHT,
                "pipeline": pipeline,
                "variant": variant,
                **columns("latency_ms", [1e3 * fmean(one.latency_s) for one in own], 3),
                **columns("p99_ms", [1e3 * float(np.percentile(one.latency_s, 99)) for one in own], 3),
                "failed": 0,
                "different": sum(
                    a != b for one in own for a, b in zip(one.read, right[pipeline, one.repeat], strict=True)
                ),
            }
        )
    for part, loaded in ((BUSY, busy), (BATCHES, batched)):
        found += [_loaded(part, loaded, *key) for key in dict.fromkeys((one.pipeline, one.variant) for one in loaded)]
    return found


def _loaded(part: str, loaded: Sequence[Loaded], pipeline: str, variant: str) -> dict[str, object]:
    own = [one for one in loaded if (one.pipeline, one.variant) == (pipeline, variant)]
    sizes = [one.batch for one in own if one.batch is not None]
    return {
        "part": part,
        "pipeline": pipeline,
        "variant": variant,
        **columns("latency_ms", [1e3 * one.mean_s for one in own], 3),
        **columns("p99_ms", [1e3 * one.p99_s for one in own], 3),
        **columns("answers_rps", [one.answers_rps for one in own], 1),
        "batch": round(fmean(sizes), 2) if sizes else None,
        "failed": sum(one.failed for one in own),
    }


# --- claims ---------------------------------------------------------------------------------------------------------


def judge(rows: Rows) -> Iterator[Claim]:
    """The report's figures and ours, in the order of the chapter; the rules are those of experiment.yaml."""
    settings = read_settings(__package__)
    note = _busy_note(rows)
    yield _answers(rows)
    for pipeline in PIPELINES:
        yield _reduction(settings, rows, pipeline, note)
    yield _ratio(settings, rows)
    for part in (LIGHT, BUSY):
        yield _optimised(rows, part, "cascade", "fused", "latency_ms", note)
        for pipeline in PIPELINES:
            yield _optimised(rows, part, pipeline, "compete", "p99_ms", note)
    for pipeline in PIPELINES:
        yield _batches(rows, pipeline, note)


def _answers(rows: Rows) -> Claim:
    different, failed = (sum(row.get(key) or 0 for row in rows) for key in ("different", "failed"))
    return fact(
        "Every variant reads the same digit as the graph, and every request is answered",
        "no difference, no failure",
        different == failed == 0,
        paper="required of a run",
        ours={"different": different, "failed": failed},
        kind="own",
    )


def _reduction(settings: Mapping[str, Any], rows: Rows, pipeline: str, note: str | None) -> Claim:
    printed = settings["printed"][pipeline]
    theirs = 1 - printed["cloudburst"] / printed["clipper"]
    graph, in_turn = (pick(rows, part=LIGHT, pipeline=pipeline, variant=name) for name in ("graph", "in-turn"))
    ours = exact(1).minus(quotient(graph, in_turn, "latency_ms"))
    why = (
        "Clipper and Cloudburst cannot be run here. Ours is the same pipeline on the same gateway, once as a graph and "
        "once by a client that calls each model in turn and combines the answers itself. Networks of a millisecond or "
        "less leave mostly the calls to be compared, where the report's take a fifth of a second and more."
    )
    return decide(
        f"Table 3.1, {pipeline}: a graph in the cluster answers in so much less time than calls in turn",
        within(settings["rough"], theirs),
        ours,
        paper=f"{theirs:.1%}",
        ours=f"{ours.mean:.1%} ({in_turn['latency_ms']:.2f} to {graph['latency_ms']:.2f} ms)",
        note=f"{why} {note}" if note else why,
    )


def _ratio(settings: Mapping[str, Any], rows: Rows) -> Claim:
    printed = {name: settings["printed"][name]["cloudburst"] for name in PIPELINES}
    theirs = printed["cascade"] / printed["ensemble"]
    ensemble, cascade = (pick(rows, part=LIGHT, pipeline=name, variant="graph") for name in PIPELINES)
    return decide(
        "Table 3.1: the cascade takes so many times as long as the ensemble, as a graph",
        within(settings["rough"], theirs),
        quotient(cascade, ensemble, "latency_ms"),
        paper=round(theirs, 1),
        note=(
            "Both pipelines call at most the same models here. What made the report's cascade ten times as slow as its "
            "ensemble, models or inputs, is not in the report."
        ),
    )


def _optimised(rows: Rows, part: str, pipeline: str, variant: str, figure: str, note: str | None) -> Claim:
    before, after = (pick(rows, part=part, pipeline=pipeline, variant=name) for name in ("graph", variant))
    what = {"fused": "fusion", "compete": "competition"}[variant]
    return decide(
        f"{pipeline}, {part}: {what} lowers {_NAMES[figure]}",
        below(0, "lower, repeat by repeat"),
        difference(after, before, figure),
        paper="lower",
        ours=f"{before[figure]:.2f} -> {after[figure]:.2f} ms",
        note=note,
    )


def _batches(rows: Rows, pipeline: str, note: str | None) -> Claim:
    own = select(rows, part=BATCHES, pipeline=pipeline)
    by_size: dict[int, Row] = {int(str(row["variant"]).removeprefix("batch-")): row for row in own}
    least, most = min(by_size), max(by_size)
    why = (
        "On CPU cores: figure 3.3 has a GPU, whose tenfold throughput at large batches cannot be shown here. What a "
        "batch saves on a core is mostly messages."
    )
    return decide(
        f"{pipeline}: batches up to {most} answer more per second than single calls",
        above(1, f"more than 1 times as many at {most} as at {least}, repeat by repeat"),
        quotient(by_size[most], by_size[least], "answers_rps"),
        paper="more (figure 3.3, on a GPU)",
        ours=", ".join(f"{row['answers_rps']:.0f}/s at {size}" for size, row in sorted(by_size.items())),
        kind="own",
        note=f"{why} {note}" if note else why,
    )


def _busy_note(rows: Rows) -> str | None:
    busy = max((float(row["busy_before"]) for row in rows if row.get("busy_before") is not None), default=0.0)
    if busy <= _BUSY_SHARE:
        return None
    return f"Of all cores' time {busy:.0%} was in use before the requests: others worked, and this says little."
