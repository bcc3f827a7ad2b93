"""The tables of results say what the committed rows decide."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from fairlead.experiments import EXPERIMENTS, committed_experiment
from fairlead.experiments.claims import Tally, tally

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


@cache
def found(name):
    return tally(committed_experiment(name).claims)


def row(text, mark):
    (line,) = (line for line in text.splitlines() if line.startswith("|") and mark in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


def counts(verdicts):
    return [str(verdicts.met), str(verdicts.not_met), str(verdicts.not_decided)]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_have_the_verdicts_of_the_committed_rows(name):
    assert row(RESULTS, f"`fairlead reproduce {name}`")[1:4] == counts(found(name))
    assert row(PAGE, f"| `{name}` |")[2:5] == counts(found(name))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_of_an_experiment_has_them_too(name):
    page = (files(EXPERIMENTS[name].module.rpartition(".")[0]) / "README.md").read_text(encoding="utf-8")
    said = re.search(r"\*\*Claims\.\*\* (\d+) met, (\d+) not met, (\d+) not decided", page)
    assert list(said.groups()) == counts(found(name))


def test_the_headline_rows_of_the_readme_are_those_of_the_page():
    headlines = [line for line in README.splitlines() if line.startswith("|") and "`fairlead reproduce " in line]
    assert len(headlines) == 5
    for line in headlines:
        mark = re.search(r"`fairlead reproduce [\w.-]+`", line)[0]
        assert row(README, mark)[:6] == row(RESULTS, mark)[:6]


def test_the_page_has_their_sum():
    total = sum(map(found, EXPERIMENTS), Tally(0, 0, 0))
    met, not_met, not_decided = counts(total)
    assert f"{met} of {total.claims} claims are met, {not_met} not met, {not_decided} not decided." in RESULTS
