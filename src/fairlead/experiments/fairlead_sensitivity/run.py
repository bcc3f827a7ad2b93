"""Attainment under wrong profiles, noise and other cold starts: `fairlead` beside its rivals under the same error."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, at_least, decide
from fairlead.experiments.fairlead_bench import OURS, Setting, failures, measure, measured_columns, shipped
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Row, Rows, difference, select
from fairlead.profile import Profile
from fairlead.workload import Scenario

_FIGURE = "attainment"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Find in the cache or do every run."""
    settings = read_settings(__package__)
    settings = {**settings, **(settings["quick"] if quick else {})}
    seeds = dict.fromkeys([OURS, *settings["rivals"]], settings["seeds"])
    points = [
        (name, error, value)
        for name in settings["scenarios"]
        for error, values in settings["errors"].items()
        for value in values
    ]
    cases = [
        Setting(
            name=f"{name}, {error} {value:g}",
            load=1.0,
            scenario=with_error(shipped(name, 1.0, settings["scenarios"][name]), error, value),
            seeds=seeds,
        )
        for name, error, value in points
    ]
    found = measure(cases, settings["limit_s"], progress)
    rows = [
        {"scenario": name, "error": error, "value": value, "policy": policy, **measured_columns(case, own[policy])}
        for (name, error, value), case, own in zip(points, cases, found, strict=True)
        for policy in seeds
    ]
    return Reproduction(
        name="fairlead-sensitivity",
        title="Attainment under wrong profiles, noise and other cold starts",
        rows=tuple(rows),
        notes=(origin(range(settings["seeds"])), *failures(cases, found)),
    )


def with_error(scenario: Scenario, error: str, value: float) -> Scenario:
    """The scenario whose true times, noise or cold starts are others, for every function."""
    return replace(scenario, profiles={name: _changed(one, error, value) for name, one in scenario.profiles.items()})


def _changed(profile: Profile, error: str, value: float) -> Profile:
    if error == "times":
        return msgspec.structs.replace(profile, bias=profile.bias * value)
    if error == "noise":
        return msgspec.structs.replace(profile, noise=value)
    assert error == "cold starts", error
    by_kind = {kind: seconds * value for kind, seconds in profile.cold_start_by_kind.items()}
    return msgspec.structs.replace(profile, cold_start_s=profile.cold_start_s * value, cold_start_by_kind=by_kind)


def judge(rows: Rows) -> Iterator[Claim]:
    """One claim per kind of error: `fairlead` is never far behind the best rival."""
    bar = read_settings(__package__)["behind"]
    done = select(rows, status="done")
    for error in dict.fromkeys(row["error"] for row in done):
        own = select(done, error=error)
        pairs = [(row, rival) for row in select(own, policy=OURS) for rival in _rivals(own, row)]
        if not pairs:
            continue
        worst, best = min(pairs, key=lambda pair: pair[0][_FIGURE] - pair[1][_FIGURE])
        yield decide(
            f"{error}: attainment of `fairlead` less that of each rival, in every scenario and at every value",
            at_least(-bar, f"never more than {100 * bar:g} points below a rival under the same error"),
            *(difference(row, rival, _FIGURE) for row, rival in pairs),
            paper="none: a claim of ours",
            ours=f"{_points(worst, best):+.1f} points at worst",
            kind="own",
            note=f"The worst is {worst['scenario']} at {worst['value']:g}, against {best['policy']}.",
        )


def _rivals(rows: Rows, ours: Mapping[str, object]) -> list[Row]:
    same = select(rows, scenario=ours["scenario"], value=ours["value"])
    return [row for row in same if row["policy"] != OURS]


def _points(row: Row, other: Row) -> float:
    return 100 * float(row[_FIGURE] - other[_FIGURE])
