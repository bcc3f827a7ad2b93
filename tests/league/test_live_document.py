"""A live league as a file, and what of it is run again."""

import json
from types import SimpleNamespace

import pytest
from live_leagues import cell, league

from fairlead.errors import ConfigError
from fairlead.league.live.document import Cell, Entrant, read_league, write_league
from fairlead.league.live.run import LiveLeague


def test_a_league_is_the_same_after_a_trip_through_its_file(tmp_path):
    written = league(cell("fifo", 0.5, 0.6), Cell(app="shop", load=2.0, policy="esg", failure="did not start"))
    write_league(written, tmp_path / "a.json", [("summary", {"share": 1})])
    assert read_league(tmp_path / "a.json") == written
    assert json.loads((tmp_path / "a.json").read_text())["summary"] == {"share": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": 1}', '{"format": 9, "seconds": 1, "seed": 0}'])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match="is no live league"):
        read_league(tmp_path / "a.json")


def test_what_is_done_is_not_run_again_and_what_failed_is():
    there = league(cell("fifo", 0.5, 0.6), Cell(app="shop", load=1.0, policy="esg", failure="did not start"))
    app = SimpleNamespace(name="shop")
    assert LiveLeague([app], ["fifo", "esg"], [1.0], there, host=None).count == 1
    assert LiveLeague([app], ["fifo", "esg"], [1.0, 2.0], there, host=None).count == 3


def test_a_new_cell_takes_the_place_of_the_former_one():
    there = league(cell("fifo", 0.5, 0.6)).with_cell(cell("fifo", 0.7, 0.6))
    assert [one.live.live.share for one in there.cells] == [0.7]


def test_a_new_capacity_takes_the_place_of_the_former_one():
    there = league(cell("fifo", 0.5, 0.6)).with_entrant(Entrant(name="shop", path="shop.py", capacity_rps=7.0))
    assert [app.capacity_rps for app in there.apps] == [7.0]


def test_rows_are_by_load_and_the_best_comes_first():
    there = league(cell("a", 0.1, 0.1, load=2.0), cell("b", 0.2, 0.2, load=2.0), cell("a", 0.9, 0.9, load=0.5))
    assert [(load, [one.policy for one in cells]) for _, load, cells in there.rows()] == [
        (0.5, ["a"]),
        (2.0, ["b", "a"]),
    ]
