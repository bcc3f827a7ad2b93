"""What the live runtime has to show, from the rows of a run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rows import CLOSED, DEADLINE_S, LIGHT, Row
from systems import BATCHED, CHAIN, FAIRLEAD, FAIRLEAD_FIFO, NOOP, RAYS, REFERENCE

REFUSAL_S = 0.010
REFUSED_EARLY = 0.99  # share of the refusals that have to come before the deadline; the rest is the machine's noise


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One demand. `figure` is None where a row it needs is missing."""

    name: str
    figure: float | None
    limit: float
    is_least: bool  # whether the limit is the least that will do, or the most
    detail: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.figure is None:
            return None
        return self.figure >= self.limit if self.is_least else self.figure <= self.limit


class Figures:
    """Medians over the repeats of a run."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)

    def rows(self, system: str, stage: str, load: str) -> list[Row]:
        return [row for row in self._rows if (row.system, row.stage, row.load) == (system, stage, load)]

    def get(self, system: str, stage: str, load: str, read: Callable[[Row], float | None]) -> float | None:
        """The median of one number; None if it was never measured."""
        values = [value for row in self.rows(system, stage, load) if (value := read(row)) is not None]
        return median(values) if values else None

    def best(
        self,
        names: Sequence[str],
        stage: str,
        load: str,
        read: Callable[[Row], float | None],
        pick: Callable[..., float],
    ) -> float | None:
        """The best of several set-ups of one system."""
        values = [value for name in names if (value := self.get(name, stage, load, read)) is not None]
        return pick(values) if values else None


def p50_s(row: Row) -> float | None:
    return row.result.latency.p50_s


def p99_s(row: Row) -> float | None:
    return row.result.latency.p99_s


def rate_rps(row: Row) -> float:
    return row.result.answered_rps


def attainment(row: Row) -> float | None:
    return row.result.attainment


def goodput_share(row: Row) -> float | None:
    """Answers in time per second, over the capacity measured in this run."""
    return row.result.goodput_rps / row.capacity_rps if row.capacity_rps else None


def refusal_p50_s(row: Row) -> float | None:
    return row.result.refusal_latency.p50_s


def refused_in_time(row: Row) -> float | None:
    return row.result.refused_in_time


def shed_share(row: Row) -> float | None:
    return sum(row.result.refused.values()) / row.result.offered if row.result.offered else None


def gates(rows: Iterable[Row]) -> list[Gate]:
    """Every demand, with its figure."""
    figures = Figures(rows)
    get = figures.get
    noop = get(FAIRLEAD, NOOP, LIGHT, p50_s)
    bare = get(REFERENCE, NOOP, LIGHT, p50_s)
    ray = figures.best(RAYS, NOOP, LIGHT, p50_s, min)
    chain = get(FAIRLEAD, CHAIN, LIGHT, p50_s)
    ray_chain = figures.best(RAYS, CHAIN, LIGHT, p50_s, min)
    rate = get(FAIRLEAD, NOOP, CLOSED, rate_rps)
    ray_rate = figures.best(RAYS, NOOP, CLOSED, rate_rps, max)
    found = [
        _most("no-op p50 over the bare reference's", noop, bare, 2.0),
        _most("no-op p50 over Ray Serve's (better set-up)", noop, ray, 1 / 3),
        _most("3-stage no-op p50 over Ray Serve's (better set-up)", chain, ray_chain, 1 / 4),
        Gate(
            name="no-op closed loop over Ray Serve's (better set-up)",
            figure=_ratio(rate, ray_rate),
            limit=5.0,
            is_least=True,
            detail=_pair(rate, ray_rate, "/s", 1),
        ),
        _least("attainment at 70 %", get(FAIRLEAD, BATCHED, "70%", attainment), 0.97),
        _least("goodput at 130 % over capacity", get(FAIRLEAD, BATCHED, "130%", goodput_share), 0.95),
        _least("goodput at 300 % over capacity", get(FAIRLEAD, BATCHED, "300%", goodput_share), 0.90),
    ]
    for load in ("130%", "300%"):
        found.append(
            Gate(
                name=f"refusal median at {load[:-1]} %, in seconds",
                figure=get(FAIRLEAD, BATCHED, load, refusal_p50_s),
                limit=REFUSAL_S,
                is_least=False,
            )
        )
        early = get(FAIRLEAD, BATCHED, load, refused_in_time)
        found.append(
            _least(f"refusals at {load[:-1]} % that came within {DEADLINE_S * 1e3:g} ms", early, REFUSED_EARLY)
        )
    return found


def shown_beside(rows: Iterable[Row]) -> list[str]:
    """What is no demand on us but belongs to the comparison: who gets nothing past saturation."""
    figures = Figures(rows)
    lines = []
    for name in (REFERENCE, FAIRLEAD_FIFO, *RAYS):
        for load in ("130%", "300%", "1000%"):
            share = figures.get(name, BATCHED, load, goodput_share)
            if share is not None:
                lines.append(f"{name} at {load[:-1]} %: goodput {share:.1%} of its capacity")
    return lines


def _ratio(figure: float | None, other: float | None) -> float | None:
    return figure / other if figure is not None and other else None


def _most(name: str, figure: float | None, other: float | None, limit: float) -> Gate:
    detail = _pair(figure, other, " ms", 1e3)
    return Gate(name=name, figure=_ratio(figure, other), limit=limit, is_least=False, detail=detail)


def _least(name: str, figure: float | None, limit: float) -> Gate:
    return Gate(name=name, figure=figure, limit=limit, is_least=True)


def _pair(figure: float | None, other: float | None, unit: str, scale: float) -> str:
    if figure is None or other is None:
        return ""
    return f"{figure * scale:,.2f}{unit} against {other * scale:,.2f}{unit}"
