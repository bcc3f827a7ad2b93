"""What the paper's curves look like, and how near the simulator comes to the measured ones."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import Claim, Measured, above, at_least, below, between, decide, exact
from fairlead.experiments.rows import Row, Rows, measured, quotient, select

_SHAPE = "complex GEMM on four GPUs (arXiv 2212.08146)"


def judge(rows: Rows) -> Iterator[Claim]:
    """The shape, then starts, then predictions."""
    if not rows:
        return  # no full run yet
    settings = read_settings(__package__)
    curves = {
        way: {row["clients"]: row for row in select(rows, way=way) if row.get("clients")}
        for way in (*settings["ways"], "exclusive actors")
    }
    yield from _shape(settings, curves)
    yield from _starts(settings, select(rows, way="starts")[0])
    for way in settings["ways"]:
        yield from _predictions(settings, way, curves[way])


def _shape(settings: Mapping[str, Any], curves: Mapping[str, Mapping[int, Row]]) -> Iterator[Claim]:
    devices = len(settings["devices"]["names"])
    home, warm, actors = curves["KaaS"], curves["KaaS, warm affinity"], curves["exclusive actors"]
    fitting = [count for count in home if devices <= count <= 10]
    if len(fitting) > 1:
        yield decide(
            "KaaS: throughput between 2 and 10 clients, over that of 2",
            between(0.85, 1.15, "within 15 % at every number of clients whose constants fit"),
            *(quotient(home[count], home[fitting[0]], "rps") for count in fitting[1:]),
            paper=f"89, 88, 88 per second with 4, 16 and 28 clients, {_SHAPE}",
            ours={count: measured(home[count], "rps").text(1) for count in fitting},
        )
    most = max(home)
    for way, curve, bar in (("KaaS", home, "a fixed home device"), ("KaaS, warm affinity", warm, "warm affinity")):
        fits = max(count for count in curve if count <= 10)
        rule = below(0.85) if way == "KaaS" else above(0.85)
        yield decide(
            f"{way}: throughput with {most} clients, whose constants do not fit, over that with {fits} ({bar})",
            rule,
            quotient(curve[most], curve[fits], "rps"),
            paper="0.18 with 32 over 28 clients and fixed homes; our simulator of it with warm affinity 0.92",
            ours=f"{measured(curve[most], 'rps').text(1)} against {measured(curve[fits], 'rps').text(1)} per second",
        )
    contended = min(count for count in actors if count > devices)
    yield decide(
        f"exclusive actors: throughput with {contended} clients over that with {devices}",
        below(0.25, "falls to less than a quarter"),
        quotient(actors[contended], actors[devices], "rps"),
        paper=f"1.5 / 89 with one client more than devices, {_SHAPE}",
        ours={count: measured(row, "rps").text(1) for count, row in actors.items()},
    )
    both = max(count for count in home if count in actors)
    yield decide(
        f"KaaS over exclusive actors with {both} clients",
        at_least(4, "at least 4 times, with the load of the constants counted"),
        quotient(warm[both], actors[both], "rps"),
        paper="60 times with 16 clients, whose constants fit",
    )


def _starts(settings: Mapping[str, Any], row: Row) -> Iterator[Claim]:
    cold, cached, warm = (float(row[f"{kind}_s"]) for kind in ("cold", "cached", "warm"))
    printed = settings["paper"]["prototype"]
    yield decide(
        "cold : cached : warm, in warm runs",
        above(1, "each at least twice the next"),
        exact(cold / cached / 2),
        exact(cached / warm / 2),
        paper=f"{printed['cold']} : {printed['cached']} : {printed['warm']} (a prototype, loaded machine)",
        ours=f"{cold / warm:.0f} : {cached / warm:.1f} : 1 ({cold:.2f} s, {cached:.3f} s, {1000 * warm:.1f} ms)",
        kind="own",
    )


def _predictions(settings: Mapping[str, Any], way: str, curve: Mapping[int, Row]) -> Iterator[Claim]:
    within = settings["within"]
    for figure, what, share in (
        ("rps", "throughput", within["rps"]),
        ("p50_ms", "median latency", within["p50_ms"]),
        ("hit_share", "hits", within["memory"]),
    ):
        yield decide(
            f"{way}: measured {what} over the predicted, 1 to {max(curve)} clients",
            between(1 - share, 1 + share, f"within {share:.0%} at every number of clients"),
            *(_over(measured(row, figure), float(row[f"{figure}_predicted"])) for row in curve.values()),
            paper="not published",
            ours={count: _both(row, figure, 2) for count, row in curve.items()},
            kind="own",
        )
    evicting = {count: row for count, row in curve.items() if float(row["evictions_per_run_predicted"]) > 0}
    if evicting:
        share = within["memory"]
        yield decide(
            f"{way}: measured evictions per run over the predicted, where memory is short",
            between(1 - share, 1 + share, f"within {share:.0%}"),
            *(
                _over(measured(row, "evictions_per_run"), float(row["evictions_per_run_predicted"]))
                for row in evicting.values()
            ),
            paper="not published",
            ours={count: _both(row, "evictions_per_run", 3) for count, row in evicting.items()},
            kind="own",
        )


def _both(row: Row, figure: str, digits: int) -> str:
    return f"{measured(row, figure).text(digits)} against {float(row[f'{figure}_predicted']):.{digits}f}"


def _over(figure: Measured, predicted: float) -> Measured:
    """A figure relative to its prediction."""
    return figure.over(exact(predicted))
