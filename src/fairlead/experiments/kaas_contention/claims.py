"""What the papers say of contention and of idle GPUs, beside what the runs gave."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import Claim, below, between, decide, within
from fairlead.experiments.kaas_contention.costs import FAAS, KAAS, SERVERFUL
from fairlead.experiments.rows import Row, Rows, difference, measured, quotient, select

KAAS_WAY, ACTORS = "KaaS", "exclusive actors"
GEMM = "complex GEMM"

Curve = Mapping[int, Row]  # by clients

_FROM_INPUT = (
    "Called a fit: both sides are close to what was put in, the authors' throughput of one GPU alone, as a kernel and "
    "as an actor."
)
_STARTS = (
    "Called a fit. That a contended actor starts for every request is a result of the policy; how long a start takes "
    "(2.65 s, BERT 7.05 s) was derived from the authors' contended throughput."
)
_RESNET = (
    "Four times the authors' throughput of one GPU alone. Their four GPUs together reach 80 % of that with ResNet-50, "
    "the shortest request: something that the GPUs share (the pool, the host) limits it, which is not modelled."
)
_HOMES = "With fixed home devices, as the authors' scheduler has them; see the notes for what else does."


def judge(rows: Rows) -> Iterator[Claim]:
    """Every claim, in the order in which they are shown."""
    settings = read_settings(__package__)
    printed = settings["printed"]
    curves = {
        (model, way): {row["clients"]: row for row in select(rows, model=model, way=way)}
        for model in settings["models"]
        for way in (KAAS_WAY, ACTORS)
    }
    yield from _memory(printed[KAAS_WAY][GEMM], curves[GEMM, KAAS_WAY])
    for model in settings["models"]:
        yield from _contention(settings, model, curves[model, KAAS_WAY], curves[model, ACTORS])
    yield _cost([row for row in rows if row.get("user")])


def _contention(settings: Mapping[str, Any], model: str, kaas: Curve, actors: Curve) -> Iterator[Claim]:
    printed, gpus = settings["printed"], settings["gpus"]
    of_actors, of_kaas = printed[ACTORS][model], printed[KAAS_WAY][model]
    is_resnet = model == "ResNet-50"
    fall = of_actors[gpus] / of_actors[gpus + 1]
    ours = quotient(actors[gpus], actors[gpus + 1], "rps")
    yield decide(
        f"{model}: factor by which exclusive actors fall from {gpus} to {gpus + 1} clients",
        within(0.25, fall),
        ours,
        paper=f"{fall:.0f}x",
        ours=f"{ours.mean:.0f}x",
        kind="fit",
        note=f"{_STARTS} {_RESNET}" if is_resnet else _STARTS,
    )
    theirs, ours = printed["kaas_over_contended"][model], quotient(kaas[16], actors[16], "rps")
    yield decide(
        f"{model}: KaaS over contended actors, 16 clients",
        within(0.25, theirs),
        ours,
        paper=f"{theirs:.0f}x",
        ours=f"{ours.mean:.0f}x",
        kind="fit",
        note=f"{_STARTS} {_RESNET}" if is_resnet else _STARTS,
    )
    theirs, kept = printed["uncontended_loss"][model], quotient(kaas[gpus], actors[gpus], "rps")
    yield decide(
        f"{model}: share of the actors' throughput that KaaS has without contention",
        between(0.95 - theirs, 1.05 - theirs, "within 5 points of the printed"),
        kept,
        paper=f"{1 - theirs:.0%}",
        ours=f"{kept.mean:.1%}",
        kind="fit",
        note=_FROM_INPUT,
    )
    theirs = of_kaas[16]
    note = _RESNET if is_resnet else _FROM_INPUT
    yield decide(
        f"{model}: KaaS requests per second, 16 clients",
        within(0.1, theirs),
        measured(kaas[16], "rps"),
        paper=theirs,
        kind="fit",
        note=note,
    )
    if model != GEMM:
        yield _flat(model, of_kaas, kaas, 32)


def _flat(model: str, theirs: Mapping[int, float], ours: Curve, most: int) -> Claim:
    return decide(
        f"{model}: KaaS flat from 4 to {most} clients",
        between(0.95, 1.05, f"with {most} between 0.95 and 1.05 of 4"),
        quotient(ours[most], ours[4], "rps"),
        paper=f"{theirs[4]} to {theirs[most]}",
        ours=f"{ours[4]['rps']:.1f} to {ours[most]['rps']:.1f}",
    )


def _memory(theirs: Mapping[int, float], ours: Curve) -> Iterator[Claim]:
    """The cliff where device memory runs out: seven clients of 2.24 GB fit in one device, 28 in four."""
    yield _flat(GEMM, theirs, ours, 28)
    for count in (29, 32):
        left, share = theirs[count] / theirs[28], quotient(ours[count], ours[28], "rps")
        yield decide(
            f"{GEMM}: share of that left with {count} clients",
            between(left - 0.1, left + 0.1, "within 10 points of the printed"),
            share,
            paper=f"{left:.0%}",
            ours=f"{share.mean:.0%}",
            note=_HOMES,
        )


def _cost(rows: Rows) -> Claim:
    """Chapter 5 gives no figures but one price ratio; this is its statement."""
    levels = list(dict.fromkeys(row["utilisation"] for row in rows))
    by = {(row["utilisation"], row["user"]): row for row in rows}
    figure = "usd_per_1000_requests"
    order = (KAAS, FAAS, SERVERFUL)
    return decide(
        "A KaaS user pays least and a serverful one most, at every utilisation",
        below(0, "KaaS less than FaaS, FaaS less than serverful, seed by seed"),
        *(difference(by[u, a], by[u, b], figure) for u in levels for a, b in pairwise(order)),
        paper="yes",
        ours=", ".join(" / ".join(f"{by[u, user][figure]:.3g}" for user in (SERVERFUL, FAAS, KAAS)) for u in levels),
        note=f"USD per thousand requests, serverful / FaaS with its keep-alive / KaaS, at a utilisation of {levels}.",
    )
