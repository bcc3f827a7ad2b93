"""How far predictions are from live runs, and whether both put the policies into the same order."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import sqrt

import msgspec

from fairlead.league.live.document import Cell, League

POINTS = 0.03
"""Share in time: how far a prediction may be off."""

P50, P99 = 0.15, 0.30
"""Of latencies: by what part of the live one a prediction may be off."""

FEWEST = 300
"""Answers that a cell must have for its p99 to count."""

MIDDLE = (0.05, 0.95)
"""Cells with a live share in time between these are harder to predict than others."""

APART = 0.05
"""Two policies whose live shares in time differ by more than this have an order."""

FIFO, LIGHT = "fifo", 0.5
LEVEL = 0.01
"""Two policies whose shares in time differ by no more than this are level."""


class Off(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted less live: as a difference of shares in time, and as parts of the live latencies.

    A latency that cannot be compared is None.
    """

    points: float
    p50: float | None
    p99: float | None


class Tally(msgspec.Struct, frozen=True):
    """How many of how many."""

    met: int
    of: int

    def __str__(self) -> str:
        return f"{self.met} of {self.of}" + (f" ({self.met / self.of:.0%})" if self.of else "")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the policies of one app at one load.

    `tau` is Kendall's tau-b between live and predicted shares in time; None where all are level in either. `apart` is
    how many pairs have a live order, and `wrong` those of them that are not predicted in it, the better one first.
    """

    app: str
    load: float
    tau: float | None
    apart: int
    wrong: tuple[tuple[str, str], ...]


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that answers fewer in time than `fifo` at half load, by more than a point."""

    app: str
    policy: str
    share: float
    fifo_share: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a league says of the simulator, and of the policies.

    `share`, `middle`, `p50` and `p99` count cells whose prediction is within the bounds. `marked` counts cells whose
    live figures are doubtful, which are in the other counts too.
    """

    share: Tally
    middle: Tally
    p50: Tally
    p99: Tally
    marked: int
    failed: int
    orders: tuple[Order, ...]
    behind: tuple[Behind, ...]


def off(cell: Cell) -> Off | None:
    """How far off a prediction is; None for a cell without one, or without a live run."""
    if cell.live is None or cell.predicted is None:
        return None
    live, predicted = cell.live.live, cell.predicted
    return Off(
        points=predicted.share - live.share,
        p50=_part(predicted.p50_s, live.p50_s),
        p99=_part(predicted.p99_s, live.p99_s) if live.answers >= FEWEST else None,
    )


def judge(league: League) -> Verdict:
    """The verdict on all cells that there are."""
    compared = [(cell, found) for cell in league.cells if (found := off(cell)) is not None]
    low, high = MIDDLE
    middle = [found for cell, found in compared if cell.live is not None and low <= cell.live.live.share <= high]
    return Verdict(
        share=_within((found.points for _, found in compared), POINTS),
        middle=_within((found.points for found in middle), POINTS),
        p50=_within((found.p50 for _, found in compared), P50),
        p99=_within((found.p99 for _, found in compared), P99),
        marked=sum(bool(cell.live and cell.live.marks) for cell in league.cells),
        failed=sum(cell.live is None or cell.predicted is None for cell in league.cells),
        orders=tuple(order(app.name, load, cells) for app, load, cells in league.rows()),
        behind=tuple(one for app, load, cells in league.rows() if load == LIGHT for one in _behind(app.name, cells)),
    )


def order(app: str, load: float, cells: Sequence[Cell]) -> Order:
    """Whether live and predicted shares in time put the policies into one order."""
    shares = [
        (cell.policy, cell.live.live.share, cell.predicted.share)
        for cell in cells
        if cell.live is not None and cell.predicted is not None
    ]
    apart, wrong = 0, []
    for one, other in combinations(shares, 2):
        better, worse = (one, other) if one[1] >= other[1] else (other, one)
        if better[1] - worse[1] > APART:
            apart += 1
            if better[2] <= worse[2]:
                wrong.append((better[0], worse[0]))
    tau = kendall([live for _, live, _ in shares], [predicted for _, _, predicted in shares])
    return Order(app=app, load=load, tau=tau, apart=apart, wrong=tuple(wrong))


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two rankings of the same things; None where either has no order at all."""
    balance = first_untied = second_untied = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = _sign(first[i] - first[j]), _sign(second[i] - second[j])
        balance += a * b
        first_untied += a != 0
        second_untied += b != 0
    if not first_untied or not second_untied:
        return None
    return balance / sqrt(first_untied * second_untied)


def _behind(app: str, cells: Sequence[Cell]) -> list[Behind]:
    shares = {cell.policy: cell.live.live.share for cell in cells if cell.live is not None}
    bar = shares.get(FIFO)
    if bar is None:
        return []
    return [
        Behind(app=app, policy=policy, share=share, fifo_share=bar)
        for policy, share in shares.items()
        if share < bar - LEVEL
    ]


def _within(values: Iterable[float | None], bound: float) -> Tally:
    known = [abs(value) for value in values if value is not None]
    return Tally(sum(value <= bound + 1e-12 for value in known), len(known))


def _part(predicted: float | None, live: float | None) -> float | None:
    """As a part of the live one. Live answers of which none was predicted are a miss, not a gap."""
    if not live:
        return None
    return -1.0 if predicted is None else predicted / live - 1


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
