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
