"""`reproduce league`: its rows are the cells of the league that it runs."""

from fairlead.experiments import run_experiment
from fairlead.experiments.league import run as experiment
from fairlead.league.plan import file_entrant, make_plan
from fairlead.workload import load_scenario


def test_rows_are_cells_and_the_figure_is_the_heat_map(tmp_path, monkeypatch):
    tiny = load_scenario("quickstart", overrides={"duration_s": 2, "warmup_s": 0.5})
    plan = make_plan([file_entrant(tiny, ["fifo", "earliest-deadline"], [1.0])], 1)
    asked = {}
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path))
    monkeypatch.setattr(experiment, "core_plan", lambda chosen, **given: asked.update(given) or plan)
    found = run_experiment("league", quick=True)
    assert asked["seeds"] == 1
    assert [(row["scenario"], row["load"], row["policy"], row["status"]) for row in found.rows] == [
        ("quickstart", 1.0, "fifo", "done"),
        ("quickstart", 1.0, "earliest-deadline", "done"),
    ]
    assert max(row["attainment"] for row in found.rows) == max(row["attainment"] + row["regret"] for row in found.rows)
    (figure,) = found.figures
    assert figure.svg.startswith("<svg")
    assert len(list(tmp_path.glob("*/*.json"))) == 2


def row(policy, regret, half_width=0.0):
    return {"policy": policy, "regret": regret, "regret_half_width": half_width}


def test_claims_are_decided_by_the_regrets_of_all_cells():
    """`esg` is 20 points behind in one of two cells; `fairlead` is 0 and 0.8 points behind, 0.4 on average."""
    rows = [row("esg", 0.0), row("esg", 0.2), row("fairlead", 0.0), row("fairlead", 0.008)]
    assert [claim.verdict for claim in experiment.judge(rows)] == ["met", "met", "met"]


def test_one_cell_that_is_behind_decides_against_level_everywhere():
    rows = [row("esg", 0.0), row("fairlead", 0.03, 0.01), row("fairlead", 0.0)]
    assert [claim.verdict for claim in experiment.judge(rows)] == ["not met", "not met", "not met"]


def test_a_cell_with_a_wide_interval_decides_nothing():
    rows = [row("esg", 0.05, 0.01), row("fairlead", 0.005, 0.01)]
    assert [claim.verdict for claim in experiment.judge(rows)] == ["met", "not decided", "not decided"]
