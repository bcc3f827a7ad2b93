"""`fairlead reproduce`: theirs and ours side by side, and an honest exit code."""

import json

import pytest
from rich.text import Text
from typer.testing import CliRunner

from fairlead.cli import app, reproduce
from fairlead.cli.tables import fit_table, show_value
from fairlead.experiments import EXPERIMENTS, Claim, Reproduction

MET = Claim(claim="Answers in time", paper=3, ours=3, met=True)
MISSED = Claim(claim="Waits", paper=80.65, ours=float("nan"), met=False, note="Not at the stated load.")


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
    assert "1 of 1 claims are met" in done.stdout


def test_claim_that_is_missed_is_one_and_has_its_note(monkeypatch):
    give(monkeypatch, MET, MISSED)
    done = invoke("kaas-traces")
    assert done.exit_code == 1
    assert "[1] Not at the stated load." in done.stdout
    assert "80.65" in done.stdout
    assert "Seed 0." in done.stdout
    assert "Error" not in done.output


def test_json_is_pure_and_has_no_nan(monkeypatch):
    give(monkeypatch, MISSED)
    done = invoke("kaas-traces", "--json", "-")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["name"] == "kaas-traces"
    assert found["claims"][0] == {
        "claim": "Waits",
        "paper": 80.65,
        "ours": None,
        "met": False,
        "note": "Not at the stated load.",
    }
    assert len(found["rows"]) == 2


def test_real_experiment_has_the_exit_code_of_its_claims():
    done = invoke("kaas-traces", "--quick", "--json", "-")
    claims = json.loads(done.stdout)["claims"]
    assert done.exit_code == (0 if all(claim["met"] for claim in claims) else 1)


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
