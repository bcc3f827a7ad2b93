"""Search every group under every SLO, with the published method and ours, and count and time it."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import process_time
from typing import Any

import numpy as np

from fairlead.experiments.cases import Progress, read_settings
from fairlead.experiments.claims import Claim, above, below, decide
from fairlead.experiments.esg_overhead.profiles import draw_profiles
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Row, Rows, by_seed, difference, measured, pick, quotient
from fairlead.planning import Found, Search
from fairlead.planning.search import Method
from fairlead.report.figure import line_figure

_SEARCHES: tuple[Method, ...] = ("dual-blade", "frontier")
_MACHINE = "Times are of one core and depend on the machine; steps do not."


@dataclass(frozen=True)
class _Sample:
    """One search of one draw: what it found, and the time of each repeat."""

    draw: int
    found: Found
    times_ms: Sequence[float]

    @property
    def time_ms(self) -> float:
        """The median over the repeats."""
        return float(np.median(self.times_ms))


Samples = Mapping[tuple[str, Method], Sequence[_Sample]]  # by SLO and method


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Steps and times of all searches, beside what the slides say."""
    settings = read_settings(__package__)
    draws = settings["quick_draws" if quick else "draws"]
    _compile()
    samples: dict[tuple[str, Method], list[_Sample]] = {}
    prepared_ms: list[float] = []
    for draw in range(draws):
        for number, (group, execution_s) in enumerate(settings["groups"].items()):
            tables = draw_profiles(settings, execution_s, np.random.default_rng([draw, number]))
            before = process_time()
            search = Search(tables)
            search.run(0.0, settings["k"])  # in no time there is nothing to find: this prepares
            prepared_ms.append((process_time() - before) * 1e3)
            for slo, factor in settings["slos"].items():
                is_brute = number == 0 and draw < settings["brute_force"]
                _measure(samples, search, slo, factor * sum(execution_s), settings, draw, is_brute)
            progress((draw * len(settings["groups"]) + number + 1) / (draws * len(settings["groups"])), group)
    return Reproduction(
        name="esg-overhead",
        title="ESG's search: 256 configurations of three functions, under three SLOs",
        rows=tuple(_row(slo, method, each) for (slo, method), each in _ordered(settings, samples)),
        notes=(
            f"{draws} draws of the exponents for each of {len(settings['groups'])} groups of three functions. "
            "Execution times and prices are recalled (preset esg-recalled), and the 256 configurations are ours.",
            f"{_MACHINE} Each search is timed {settings['repeats']} times (CPU time of the process, the garbage "
            "collector off); its median counts, and intervals are over the repeats.",
            f"Preparing a group for frontier took {np.mean(prepared_ms):.2f} ms on average, once for all its SLOs.",
            "Every method found the same costs in every search.",
        ),
        figures=tuple(_figures(samples)),
    )


def _compile() -> None:
    """Let the methods be compiled, or loaded, before anything is timed."""
    for method in (*_SEARCHES, "brute-force"):
        Search([[(1.0, 1.0)]] * 3).run(9.0, 1, method)


def _measure(
    samples: dict[tuple[str, Method], list[_Sample]],
    search: Search,
    slo: str,
    budget_s: float,
    settings: Mapping[str, Any],
    draw: int,
    is_brute: bool,
) -> None:
    wanted: list[float] | None = None
    methods: tuple[Method, ...] = (*_SEARCHES, "brute-force") if is_brute else _SEARCHES
    for method in methods:
        found, times_ms = _timed(search, budget_s, settings["k"], method, settings["repeats"])
        costs = [path.cost_usd for path in found.paths]
        wanted = costs if wanted is None else wanted
        assert np.allclose(costs, wanted, rtol=1e-12, atol=0.0), (slo, budget_s, method)
        samples.setdefault((slo, method), []).append(_Sample(draw, found, times_ms))


def _timed(search: Search, budget_s: float, k: int, method: Method, repeats: int) -> tuple[Found, list[float]]:
    times_ms = []
    was_on = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            before = process_time()
            found = search.run(budget_s, k, method)
            times_ms.append((process_time() - before) * 1e3)
    finally:
        if was_on:
            gc.enable()
    return found, times_ms


def _ordered(settings: Mapping[str, Any], samples: Samples) -> list[tuple[tuple[str, Method], Sequence[_Sample]]]:
    methods: tuple[Method, ...] = (*_SEARCHES, "brute-force")
    return [((slo, method), samples[slo, method]) for method in methods for slo in settings["slos"]]


def _row(slo: str, method: Method, samples: Sequence[_Sample]) -> dict[str, object]:
    steps = [each.found.steps for each in samples]
    times_ms = np.array([each.times_ms for each in samples])  # by search and repeat
    medians_ms = np.median(times_ms, axis=1)
    draws = sorted({each.draw for each in samples})
    return {
        "method": method,
        "slo": slo,
        "searches": len(samples),
        "without_a_path": sum(not each.found.paths for each in samples),
        "steps_mean": round(float(np.mean(steps)), 1),
        "steps_p50": round(float(np.median(steps)), 1),
        "steps_p99": round(float(np.percentile(steps, 99)), 1),
        "cut_by_time_mean": round(float(np.mean([each.found.cut_by_time for each in samples])), 1),
        "cut_by_cost_mean": round(float(np.mean([each.found.cut_by_cost for each in samples])), 1),
        "steps_mean_by_seed": by_seed(
            (float(np.mean([each.found.steps for each in samples if each.draw == draw])) for draw in draws), 1
        ),
        "time_mean_ms": round(float(np.mean(medians_ms)), 4),
        "time_p50_ms": round(float(np.median(medians_ms)), 4),
        "time_p99_ms": round(float(np.percentile(medians_ms, 99)), 4),
        "time_p50_ms_by_seed": by_seed(np.median(times_ms, axis=0).tolist()),
        "time_p99_ms_by_seed": by_seed(np.percentile(times_ms, 99, axis=0).tolist()),
    }


def judge(rows: Rows) -> Iterator[Claim]:
    """Times over the repeats of all searches, steps over the draws."""
    settings = read_settings(__package__)
    slos, printed = list(settings["slos"]), settings["printed"]
    of = {method: {slo: pick(rows, method=method, slo=slo) for slo in slos} for method in (*_SEARCHES, "brute-force")}
    for method in _SEARCHES:
        yield decide(
            f"A search takes less than {printed['overhead_ms']} ms ({method}, p99)",
            below(printed["overhead_ms"], f"less than {printed['overhead_ms']} ms under every SLO"),
            *(measured(row, "time_p99_ms") for row in of[method].values()),
            paper=f"< {printed['overhead_ms']} ms",
            ours=_listed({slo: row["time_p99_ms"] for slo, row in of[method].items()}, "{:.2f} ms"),
            note=_MACHINE,
        )
    for method in _SEARCHES:
        yield _strict(of[method], slos, method)
    brute = of["brute-force"]
    brute_ms, paths = fmean(row["time_p50_ms"] for row in brute.values()), int(brute[slos[0]]["steps_mean"])
    least = printed["brute_force_ms"] / printed["overhead_ms"]
    for method in _SEARCHES:
        median_ms = fmean(row["time_p50_ms"] for row in of[method].values())
        yield decide(
            f"Brute force takes {printed['brute_force_ms']:,} ms, a search less than {printed['overhead_ms']} ms "
            f"({method}, medians)",
            above(least, f"more than {least:.0f} times as long, under every SLO"),
            *(quotient(brute[slo], of[method][slo], "time_p50_ms") for slo in slos),
            paper=f"> {least:.0f} times",
            ours=f"{brute_ms / median_ms:,.0f} times: {brute_ms:.1f} ms against {median_ms:.3f} ms",
            note=(
                f"Our brute force is compiled: {brute_ms * 1e6 / paths:.1f} ns for each of {paths:,} paths, where "
                f"theirs took {printed['brute_force_ms'] * 1e6 / paths:.0f} ns. It is "
                f"{printed['brute_force_ms'] / brute_ms:,.0f} times as fast as theirs, and that is what a search is "
                "compared with."
            ),
        )


def _strict(of: Mapping[str, Row], slos: Sequence[str], method: Method) -> Claim:
    by_time = {slo: row["cut_by_time_mean"] for slo, row in of.items()}
    note = (
        "Options that are too slow are passed over in one step, up to the first that is not. Cut by time, most of them "
        f"so: {_listed(by_time, '{:,.0f}')} on average. A loop that looks at each may find another order."
    )
    return decide(
        f"Strict SLOs are cheaper to search than relaxed ones ({method}, mean steps)",
        below(0, "fewer steps under the strict than under the relaxed SLO, draw by draw"),
        difference(of[slos[0]], of[slos[-1]], "steps_mean"),
        paper="strict < relaxed",
        ours=_listed({slo: row["steps_mean"] for slo, row in of.items()}, "{:,.0f}"),
        note=note if method == "dual-blade" else None,
    )


def _listed(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def _figures(samples: Samples) -> list[Figure]:
    """How many searches take at most so many steps, or so long."""
    figures = []
    for name, label in (("steps", "steps"), ("time", "milliseconds")):
        lines = {}
        for (slo, method), each in samples.items():
            if method != "brute-force":
                values = [s.found.steps if name == "steps" else s.time_ms for s in each]
                shares = np.linspace(0.0, 1.0, 21)
                lines[f"{method}, {slo}"] = list(
                    zip(np.quantile(values, shares).tolist(), shares.tolist(), strict=True)
                )
        title = f"Searches that take at most so many {label}"
        svg = line_figure(title, dict(sorted(lines.items())), x_label=label, y_label="share of searches", is_log_x=True)
        figures.append(Figure(name=f"esg-overhead-{name}", title=title, svg=svg))
    return figures
