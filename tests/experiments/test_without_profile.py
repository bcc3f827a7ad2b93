"""The experiment on apps that were never measured: its arrivals, what counts as in time, rows and verdicts."""

import polars as pl
import pytest

from fairlead.app import App
from fairlead.experiments import committed_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.rows import committed_rows
from fairlead.experiments.without_profile.run import judge, row
from fairlead.experiments.without_profile.serving import Served, arrivals, body_of, in_time

PACKAGE = "fairlead.experiments.without_profile"
SETTINGS = read_settings(PACKAGE)


def app_of(*workflows):
    app = App("app")
    function = app.function(name="f")(abs)
    for name in workflows:
        app.workflow(name, function, slo=1, example={"png": b"ab"})
    return app.manifest()


def test_arrivals_are_as_many_as_asked_for_and_the_same_again():
    found = arrivals(app_of("a", "b"), 10.0, 500, 1)
    instants = sorted(found["a"] + found["b"])
    assert len(instants) == 500
    assert 180 < len(found["a"]) < 320
    assert 40 < instants[-1] < 60  # 500 at 10 a second
    assert found == arrivals(app_of("a", "b"), 10.0, 500, 1) != arrivals(app_of("a", "b"), 10.0, 500, 2)


def test_what_was_late_refused_unfinished_or_never_came_was_not_in_time():
    rows = [
        (1, 2.0, 3.0, 2.5, "completed"),
        (0, 1.0, 2.0, 2.0, "completed"),
        (2, 3.0, 4.0, 4.1, "completed"),
        (3, 4.0, 5.0, 4.0, "rejected"),
        (4, 5.0, 6.0, None, "unfinished"),
        (5, 6.0, 7.0, 6.5, "completed"),
    ]
    table = pl.DataFrame(rows, schema=["request", "arrival", "deadline", "end", "outcome"], orient="row")
    assert in_time(table, 8) == (True, True, False, False, False, True, False, False)
    assert in_time(table, 3) == (True, True, False)


def test_a_row_has_the_shares_of_all_steps():
    served = Served(in_time=(*[False] * 100, *[True] * 300, *[False, True] * 50), busy=0.5)
    found = row(SETTINGS, 123.44, served)
    assert (found["attainment"], found["attainment_settled"], found["capacity_rps"]) == (0.7, 0.8333, 123.4)
    assert [found[f"attainment_to_{to}"] for to in (100, 200, 300, 400, 500)] == [0.0, 1.0, 1.0, 1.0, 0.5]


def rows(**losses):
    """Two repeats of each app, with these losses over all and after the first ones."""
    return [
        {
            "app": app,
            "repeat": repeat,
            "has_profile": has_profile,
            "attainment": 0.95 - (0 if has_profile else loss),
            "attainment_settled": 0.99 - (0 if has_profile else settled),
        }
        for app, (loss, settled) in losses.items()
        for repeat in range(2)
        for has_profile in (True, False)
    ]


@pytest.mark.parametrize(
    ("losses", "verdicts"),
    [
        ({"a": (0.04, 0.01), "b": (-0.01, 0.0)}, ["met", "met"]),
        ({"a": (0.04, 0.03), "b": (0.0, 0.0)}, ["met", "not met"]),
        ({"a": (0.06, 0.01)}, ["not met", "met"]),
    ],
)
def test_each_app_must_keep_within_the_bars(losses, verdicts):
    claims = list(judge(rows(**losses)))
    assert [claim.verdict for claim in claims] == verdicts
    assert claims[0].ours["a"] == f"{100 * losses['a'][0]:.1f} points"


def test_one_repeat_decides_nothing():
    assert {claim.verdict for claim in judge([r for r in rows(a=(0.0, 0.0)) if not r["repeat"]])} == {"not decided"}


def test_without_committed_rows_nothing_is_claimed():
    committed = committed_experiment("without-profile")
    assert len(committed.claims) == (2 if committed.rows else 0)
    assert list(judge([])) == []
    assert committed_rows("fairlead.experiments.scenarios") == []  # a package without rows


def test_requests_are_the_examples_in_json():
    assert body_of(app_of("w").workflows[0]) == b'{"input": {"png":"YWI="}}'
