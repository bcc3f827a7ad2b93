"""`fairlead reproduce`: theirs and ours side by side, and an honest exit code."""

import json

import pytest
from rich.text import Text
from typer.testing import CliRunner

from fairlead.cli import app, reproduce
from fairlead.cli.tables import fit_table, show_value
from fairlead.experiments import EXPERIMENTS, Claim, Reproduction
from fairlead.experiments.claims import above, around, decide, equal, exact, sampled, within

MET = decide("Answers in time", equal(3), exact(3), paper=3)
MISSED = decide("Waits", within(0.2, 80.65), around(6.84, 1.48), paper=80.65, note="Not at the stated load.")
OPEN = decide("Leads", above(0), sampled([1.0]), paper="yes", ours=float("nan"), kind="own")


def invoke(*args: str):
    return CliRunner().invoke(app, ["reproduce", *args])


def give(monkeypatch: pytest.MonkeyPatch, *claims: Claim) -> None:
    def run(name, *, quick, progress):
        progress(0.5, "half")
        rows = ({"policy": "fifo", "wait_s": 2.5}, {"policy": "srtf", "hits": 3})
        return Reproduction(name=name, title="A table", claims=claims, rows=rows, notes=("Seed 0.",))

    monkeypatch.setattr(reproduce, "run_experiment", run)


def test_every_claim_met_is_zero(monkeypatch):
    give(monkeypatch, MET)
    done = invoke("kaas-traces")
    assert done.exit_code == 0
    assert "1 of 1 claims are met, 0 not met, 0 not decided." in done.stdout


def test_claim_that_is_missed_is_one_and_has_its_note(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    give(monkeypatch, MET, MISSED)
    done = invoke("kaas-traces")
    assert done.exit_code == 1
    assert "[1] Not at the stated load." in done.stdout
    assert "80.65" in done.stdout
    assert "Seed 0." in done.stdout
    assert "6.84" in done.stdout
    assert "5.36 to 8.32" in done.stdout  # the interval
    assert "within 20 %" in done.stdout  # the rule
    assert "1 of 2 claims are met, 1 not met, 0 not decided." in done.stdout
    assert "Error" not in done.output


def test_claim_that_is_not_decided_is_one_too(monkeypatch):
    give(monkeypatch, MET, OPEN)
    done = invoke("kaas-traces")
    assert done.exit_code == 1
    assert "1 of 2 claims are met, 0 not met, 1 not decided." in done.stdout
    assert "(own)" in done.stdout


def test_json_is_pure_and_has_no_nan(monkeypatch):
    give(monkeypatch, MISSED, OPEN)
    done = invoke("kaas-traces", "--json", "-")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["name"] == "kaas-traces"
    assert found["claims"][0] == {
        "claim": "Waits",
        "paper": 80.65,
        "ours": 6.84,
        "interval": [5.36, 8.32],
        "rule": "within 20 % of the printed",
        "verdict": "not met",
        "kind": "reproduction",
        "note": "Not at the stated load.",
    }
    assert (found["claims"][1]["ours"], found["claims"][1]["interval"]) == (None, None)
    assert len(found["rows"]) == 2


def test_real_experiment_has_the_exit_code_of_its_claims():
    done = invoke("kaas-traces", "--quick", "--json", "-")
    claims = json.loads(done.stdout)["claims"]
    assert done.exit_code == (0 if all(claim["verdict"] == "met" for claim in claims) else 1)


def test_committed_rows_are_judged_without_a_run(monkeypatch):
    monkeypatch.setattr(reproduce, "run_experiment", None)
    done = invoke("kaas-traces", "--committed")
    assert done.exit_code == 1
    assert "39 of 40 claims are met, 1 not met, 0 not decided." in done.stdout


def test_all_committed_experiments_are_counted_with_their_sum():
    done = invoke("--committed", "--json", "-")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["experiments"]] == list(EXPERIMENTS)
    for key in ("claims", "met", "not_met", "not_decided"):
        assert found["total"][key] == sum(one[key] for one in found["experiments"])
    total = found["total"]
    assert total["claims"] == total["met"] + total["not_met"] + total["not_decided"]
    lines = invoke("--committed").stdout.splitlines()
    assert any(line.split() == ["kaas-traces", "40", "39", "1", "0"] for line in lines)
    assert lines[-1] == (
        f"{total['met']} of {total['claims']} claims are met, {total['not_met']} not met, "
        f"{total['not_decided']} not decided."
    )


def test_nothing_is_drawn_or_shortened_where_nothing_runs():
    done = invoke("kaas-traces", "--committed", "--quick")
    assert done.exit_code == 2
    assert "--committed runs nothing" in done.output


def test_all_experiments_are_listed():
    listed = json.loads(invoke("--list", "--json", "-").stdout)["experiments"]
    assert [one["name"] for one in listed] == list(EXPERIMENTS)
    text = invoke("--list").stdout
    assert all(name in text for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (True, "yes"),
        (2.25, "2.25"),
        (6.666666, "6.667"),
        (12345.6, "12,346"),
        ({"fifo": 25.0, "srtf": 26}, "fifo 25, srtf 26"),
        ([1, None], "1, –"),
    ],
    ids=str,
)
def test_values_are_shown_as_people_write_them(value, expected):
    assert show_value(value) == expected


def test_table_keeps_words_whole_or_is_not_shown():
    lines = [[Text("a longer claim"), Text("12.5")]]
    assert fit_table(["claim", "ours"], lines, 15) is not None  # longer + 12.5 or ours, and 5 for the frame
    assert fit_table(["claim", "ours"], lines, 14) is None
