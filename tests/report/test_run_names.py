"""`fairlead report`: runs that differ in nothing but their folder are told apart by short names."""

from pathlib import Path

import pytest
from report_frames import small

from fairlead.cli.report import read_runs, short_names
from fairlead.report import write_run


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/s/a/runs/1", "/s/a/runs/2"], ["1", "2"]),
        (["/s/a/runs/1", "/s/b/runs/1"], ["a", "b"]),
        (["/s/a/1", "/s/b/2"], ["a/1", "b/2"]),
        (["/s/a", "/s/a/b"], ["a", "a/b"]),
    ],
)
def test_names_are_what_paths_do_not_share(folders, names):
    assert short_names([Path(folder) for folder in folders]) == names


def test_runs_of_one_folder_that_look_the_same_are_not_seeds_of_one(tmp_path):
    for name in ("1", "2", "3"):
        write_run(small(), tmp_path / "long" / "path" / name)
    assert [run.point for run in read_runs([tmp_path / "long" / "path"])] == [{"run": name} for name in "123"]
