"""Claims and how they are decided: a measured interval against the region that a rule accepts.

A rule is a region of numbers, written down before the run. A claim is met if the whole 95 % interval of the figure lies
in that region, not met if none of it does, and not decided otherwise. A deterministic figure has an interval of one
point; a single sample of a noisy figure has an interval without ends, so it decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Literal

from fairlead.report import estimate

Verdict = Literal["met", "not met", "not decided"]
Kind = Literal["reproduction", "fit", "own"]


@dataclass(frozen=True)
class Measured:
    """A figure and its 95 % interval. The ends are infinite where the interval is not known."""

    mean: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, or None where the interval is not known."""
        return (self.low, self.high) if isfinite(self.low) and isfinite(self.high) else None

    def minus(self, other: "Measured", factor: float = 1.0) -> "Measured":
        """This figure minus `factor` times an independent one: variances add up, hence squares of half widths."""
        return around(
            self.mean - factor * other.mean,
            _root(self._half_width, factor * other._half_width),
        )

    def over(self, other: "Measured") -> "Measured":
        """The quotient with an independent figure, by the delta method; not known where the divisor may be zero."""
        if other.low <= 0 <= other.high:
            return Measured(self.mean / other.mean if other.mean else inf, -inf, inf)
        quotient = self.mean / other.mean
        part = self._half_width / other.mean
        return around(quotient, _root(part, quotient * other._half_width / other.mean))

    @property
    def _half_width(self) -> float:
        return (self.high - self.low) / 2

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """The mean with its interval, such as `1.36 [1.30, 1.42]`; the mean alone where that is exact or not known."""
        mean = f"{scale * self.mean:.{digits}f}"
        if self.interval is None or self.low == self.high:
            return mean
        return f"{mean} [{scale * self.low:.{digits}f}, {scale * self.high:.{digits}f}]"


def exact(value: float) -> Measured:
    """A figure that every run gives again."""
    return Measured(value, value, value)


def around(mean: float, half_width: float | None) -> Measured:
    """A mean and half of its interval; None if that is not known."""
    return Measured(mean, -inf, inf) if half_width is None else Measured(mean, mean - half_width, mean + half_width)


def sampled(values: Sequence[float]) -> Measured:
    """The mean over independent runs, by Student's t. One run has no interval."""
    found = estimate(values)
    return around(found.mean, found.half_width)


def paired(values: Sequence[float], others: Sequence[float], factor: float = 1.0) -> Measured:
    """`values` minus `factor` times `others`, pair by pair: both are of the same seeds, in the same order."""
    return sampled([value - factor * other for value, other in zip(values, others, strict=True)])


def paired_ratio(values: Sequence[float], others: Sequence[float]) -> Measured:
    """The mean of `values` over that of `others`, which are of the same seeds; by the delta method on the pairs."""
    shares = linearised(values, others)
    return Measured(inf, -inf, inf) if shares is None else sampled(shares)


def linearised(values: Sequence[float], others: Sequence[float]) -> list[float] | None:
    """What each pair contributes to the quotient of the two means; None if the divisor is zero.

    Their mean is that quotient, and the interval of their mean is that of the quotient to first order.
    """
    value, other = sum(values) / len(values), sum(others) / len(others)
    if not other:
        return None
    ratio = value / other
    return [ratio + (one - ratio * two) / other for one, two in zip(values, others, strict=True)]


def _root(one: float, other: float) -> float:
    return sqrt(one * one + other * other)


@dataclass(frozen=True)
class Rule:
    """The region from `low` to `high` that counts as met, in words and numbers; without its ends if `is_open`."""

    text: str
    low: float = -inf
    high: float = inf
    is_open: bool = False

    def verdict(self, figure: Measured) -> Verdict:
        """Whether the interval of a figure lies in the region, outside of it, or across one of its ends."""
        if self.is_open:
            is_inside = self.low < figure.low and figure.high < self.high
            is_outside = figure.high <= self.low or self.high <= figure.low
        else:
            is_inside = self.low <= figure.low and figure.high <= self.high
            is_outside = figure.high < self.low or self.high < figure.low
        return "met" if is_inside else "not met" if is_outside else "not decided"

    def margin(self, figure: Measured) -> float:
        """How far the interval of a figure is from the nearer end of the region; negative beyond it."""
        return min(figure.low - self.low, self.high - figure.high)


def at_least(bar: float, text: str | None = None) -> Rule:
    """The figure is `bar` or more."""
    return Rule(text or f"at least {bar:g}", low=bar)


def at_most(bar: float, text: str | None = None) -> Rule:
    """The figure is `bar` or less."""
    return Rule(text or f"at most {bar:g}", high=bar)


def above(bar: float, text: str | None = None) -> Rule:
    """The figure is more than `bar`."""
    return Rule(text or f"more than {bar:g}", low=bar, is_open=True)


def below(bar: float, text: str | None = None) -> Rule:
    """The figure is less than `bar`."""
    return Rule(text or f"less than {bar:g}", high=bar, is_open=True)


def between(low: float, high: float, text: str | None = None) -> Rule:
    """The figure is in the closed range."""
    return Rule(text or f"between {low:g} and {high:g}", low=low, high=high)


def within(share: float, printed: float, text: str | None = None) -> Rule:
    """The figure differs from the printed one by at most this share of it."""
    apart = abs(share * printed)
    return Rule(text or f"within {100 * share:g} % of the printed", low=printed - apart, high=printed + apart)


def equal(printed: float, text: str | None = None) -> Rule:
    """The figure is the printed one. Only a deterministic figure can be."""
    return Rule(text or "equal", low=printed, high=printed)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement, the published figure and ours, and what the rule makes of it.

    `interval` is that of the number which the rule is about, None where that is no number or has no known interval.
    `kind` is `fit` where parameters were fitted to the numbers compared, and `own` where no paper has the bar. `note`
    says why it is not met, or under which reading it is.
    """

    claim: str
    paper: object
    ours: object
    interval: tuple[float, float] | None = None
    rule: str
    verdict: Verdict
    kind: Kind = "reproduction"
    note: str | None = None


NO_INTERVAL = (
    "Not decided: the rows have one run of this figure, or no interval. At least two seeds are needed, better five."
)


def decide(
    claim: str,
    rule: Rule,
    *figures: Measured,
    paper: object,
    ours: object = None,
    kind: Kind = "reproduction",
    note: str | None = None,
) -> Claim:
    """A claim that is met if the rule accepts every figure, and not met if it rejects one."""
    return decide_all(
        claim, rule.text, [(rule, each) for each in figures], paper=paper, ours=ours, kind=kind, note=note
    )


def decide_all(
    claim: str,
    rule: str,
    parts: Sequence[tuple[Rule, Measured]],
    *,
    paper: object,
    ours: object = None,
    kind: Kind = "reproduction",
    note: str | None = None,
) -> Claim:
    """A claim of several parts, each with its own bar; the interval shown is that of the part that decides."""
    verdicts = [part.verdict(figure) for part, figure in parts]
    verdict = conjunction(verdicts)
    deciding = [part for part, own in zip(parts, verdicts, strict=True) if own == verdict]
    decisive = min(deciding, key=lambda part: part[0].margin(part[1]))[1]
    if verdict == "not decided" and decisive.interval is None:
        note = f"{note} {NO_INTERVAL}" if note else NO_INTERVAL
    return Claim(
        claim=claim,
        paper=paper,
        ours=_plain(decisive.mean) if ours is None else ours,
        rule=rule,
        verdict=verdict,
        interval=decisive.interval and (_plain(decisive.low), _plain(decisive.high)),
        kind=kind,
        note=note,
    )


def fact(
    claim: str,
    rule: str,
    is_so: bool,
    *,
    paper: object,
    ours: object,
    kind: Kind = "reproduction",
    note: str | None = None,
) -> Claim:
    """A claim about a deterministic result that is no single number, such as a trace or an order of exact figures."""
    verdict: Verdict = "met" if is_so else "not met"
    return Claim(claim=claim, paper=paper, ours=ours, rule=rule, verdict=verdict, kind=kind, note=note)


def conjunction(verdicts: Sequence[Verdict]) -> Verdict:
    """Not met if one is not met, else not decided if one is not decided, else met."""
    for worst in ("not met", "not decided"):
        if worst in verdicts:
            return worst
    return "met"


def _plain(value: float) -> float:
    """Six digits are enough to be read."""
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Tally:
    """How many claims have each verdict."""

    met: int
    not_met: int
    not_decided: int

    @property
    def claims(self) -> int:
        """All of them."""
        return self.met + self.not_met + self.not_decided

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.met + other.met, self.not_met + other.not_met, self.not_decided + other.not_decided)


def tally(claims: Sequence[Claim]) -> Tally:
    """Count the verdicts."""
    verdicts = [claim.verdict for claim in claims]
    return Tally(verdicts.count("met"), verdicts.count("not met"), verdicts.count("not decided"))
