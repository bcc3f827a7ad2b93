"""Runs on disk: the way back, equal bytes, and folders that are no run."""

import json
import os
import subprocess
import sys
from math import inf
from pathlib import Path

import polars as pl
import pytest
from report_frames import small

from fairlead.errors import ConfigError
from fairlead.model import Refusal
from fairlead.report import read_run, summarise, write_run

NAMES = ("requests.parquet", "invocations.parquet", "instances.parquet")


def test_a_run_comes_back_as_it_was(tmp_path):
    run = small(
        parameters={"limit_s": inf, "sizes": [1, 2]},
        point={"rate_rps": 40.0},
        refusals=(Refusal(now=1.0, action="Start", reason="full"),),
        decision_s=(0.1, 0.2),
        run_wall_s=1.5,
    )
    back = read_run(write_run(run, tmp_path / "run"))
    for name in ("requests", "invocations", "instances"):
        assert getattr(back, name).equals(getattr(run, name))
    for name in ("cluster", "parameters", "point", "refusals", "decision_s", "run_wall_s", "policy", "warmup_s"):
        assert getattr(back, name) == getattr(run, name)
    assert summarise(back) == summarise(run)


def test_measured_times_stand_apart(tmp_path):
    heads = []
    for seconds in (1.0, 2.0):
        write_run(small(run_wall_s=seconds, decision_s=(seconds,)), tmp_path)
        heads.append(json.loads((tmp_path / "run.json").read_text()))
        assert heads[-1].pop("measured") == {"run_wall_s": seconds, "decision_s": [seconds]}
    assert heads[0] == heads[1]


def test_equal_runs_give_equal_bytes_in_any_process(tmp_path):
    write_run(small(), tmp_path / "here")
    code = (
        "import sys, report_frames as frames, fairlead.report as report; report.write_run(frames.small(), sys.argv[1])"
    )
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "there")], env=environment, check=True)
    for name in (*NAMES, "run.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_how_the_rows_were_collected_does_not_show(tmp_path):
    run = small()
    halves = pl.concat([run.requests.head(2), run.requests.tail(-2)], rechunk=False)
    write_run(run, tmp_path / "one")
    write_run(small().__class__(**{**vars(run), "requests": halves}), tmp_path / "two")
    assert (tmp_path / "one" / NAMES[0]).read_bytes() == (tmp_path / "two" / NAMES[0]).read_bytes()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no run is here"):
        read_run(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(ConfigError, match=rf"Those of this folder are in {tmp_path}/runs\."):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"some": "file"}')
    with pytest.raises(ConfigError, match=r"run\.json: format must be 1"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"run\.json: not the head of a run"):
        read_run(tmp_path)


def test_damaged_tables_are_all_named(tmp_path):
    write_run(small(), tmp_path)
    data = (tmp_path / NAMES[0]).read_bytes()
    (tmp_path / NAMES[0]).write_bytes(data[: len(data) // 2])
    (tmp_path / NAMES[1]).write_bytes(bytes([data[0] ^ 1]) + (tmp_path / NAMES[1]).read_bytes()[1:])
    (tmp_path / NAMES[2]).unlink()
    with pytest.raises(ConfigError) as caught:
        read_run(tmp_path)
    assert [fault.path for fault in caught.value.faults] == list(NAMES)


def test_a_missing_entry_of_the_head_is_named(tmp_path):
    write_run(small(), tmp_path)
    head = json.loads((tmp_path / "run.json").read_text())
    del head["policy"]
    (tmp_path / "run.json").write_text(json.dumps(head))
    with pytest.raises(ConfigError, match="policy"):
        read_run(tmp_path)


def test_a_folder_with_odd_characters_works(tmp_path):
    assert read_run(write_run(small(), tmp_path / "a[1]*?")).requests.height == 6
