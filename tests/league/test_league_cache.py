"""The cache: what is found, and what is done again."""

import os

import pytest

from fairlead.league.cache import Cache, default_folder
from fairlead.league.figures import Figures, Outcome

KEY = "ab" * 32
FIGURES = Figures(
    requests=10,
    completed=9,
    rejected=1,
    attainment=0.9,
    goodput_rps=4.5,
    cost_usd=0.01,
    worst_attainment=0.9,
    worst_workflow="main",
    cold_starts=1,
    decision_s=1e-5,
    wall_s=0.2,
    cpu_s=0.1,
)
DONE = Outcome(status="done", figures=FIGURES, wall_s=0.2)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_a_stored_run_is_found_as_it_was(cache):
    assert cache.find(KEY, 60) is None
    cache.keep(KEY, DONE, "fifo on quickstart")
    assert cache.find(KEY, 60) == DONE
    assert cache.find("cd" * 32, 60) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"key": "other", "of": "", "outcome": {"status": "done"}}', b"\xff\xfe"]
)
def test_a_damaged_entry_is_absent(cache, content):
    cache.keep(KEY, DONE, "")
    cache._path(KEY).write_bytes(content)
    assert cache.find(KEY, 60) is None


def test_an_entry_under_the_name_of_another_is_absent(cache):
    cache.keep(KEY, DONE, "")
    other = "cd" * 32
    cache._path(other).parent.mkdir(parents=True)
    os.replace(cache._path(KEY), cache._path(other))
    assert cache.find(other, 60) is None


def test_errors_are_not_kept(cache):
    cache.keep(KEY, Outcome(status="error", reason="raised"), "")
    assert cache.find(KEY, 60) is None


def test_too_slow_is_known_for_its_limit_and_lower_ones(cache):
    slow = Outcome(status="too slow", limit_s=60.0, wall_s=60.1)
    cache.keep(KEY, slow, "")
    assert cache.find(KEY, 60) == slow
    assert cache.find(KEY, 10) == slow
    assert cache.find(KEY, 61) is None


def test_nothing_is_left_half_written(cache, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        cache.keep(KEY, DONE, "")
    assert not list(cache.folder.rglob("*.part"))
    assert cache.find(KEY, 60) is None


def test_without_a_folder_nothing_is_kept():
    nothing = Cache(None)
    nothing.keep(KEY, DONE, "")
    nothing.keep_wall_times({"cell": 1.0})
    assert nothing.find(KEY, 60) is None
    assert nothing.wall_times() == {}


def test_wall_times_of_other_cells_stay(cache):
    cache.keep_wall_times({"a": 1.0, "b": 2.0})
    cache.keep_wall_times({"b": 3.0})
    assert cache.wall_times() == {"a": 1.0, "b": 3.0}
    (cache.folder / "wall.json").write_text("{")
    assert cache.wall_times() == {}


def test_the_folder_is_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"
    monkeypatch.delenv("FAIRLEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "fairlead" / "league"
