"""`fairlead simulate`: results, files, and what --set reaches."""

import json
from pathlib import Path

import pytest
from run_cli import run_cli
from typer.testing import CliRunner

from fairlead.cli import app

SHORT = ("--set", "duration_s=8", "--set", "warmup_s=1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulate(*args: str, code: int = 0):
    result = CliRunner().invoke(app, ["simulate", *args])
    assert result.exit_code == code, result.output
    return result


def results(*args: str) -> list[dict]:
    return json.loads(simulate(*args, "--json", "-", "--quiet").stdout)["results"]


def test_worked_example_of_the_paper_prints_nothing_but_json():
    done = simulate("kaas-example", "--policy", "kaas-srtf", "--set", "policy.mode=compat", "--json", "-")
    found = json.loads(done.stdout)
    (only,) = found["results"]
    assert found["scenario"] == "kaas-example"
    assert (only["makespan_s"], only["cold_starts"], only["wait_s"]["mean"]) == (26, 3, 2.5)
    assert (only["policy"], only["scaler"], only["seed"], only["engine"]) == ("kaas-srtf", None, 0, "python")


def test_same_seed_gives_the_same_bytes_in_any_process(folder):
    for name, jobs in (("1", "1"), ("2", "2")):
        done = run_cli(
            *("simulate", "quickstart", *SHORT, "--seeds", "2", "--jobs", jobs, "--out", name),
            cwd=folder,
            PYTHONHASHSEED=name,
        )
        assert done.returncode == 0, done.stderr
    tables = sorted(path.relative_to("1") for path in Path("1").glob("*/*.parquet"))
    assert len(tables) == 6
    for table in tables:
        assert ("1" / table).read_bytes() == ("2" / table).read_bytes()


def test_results_do_not_depend_on_the_number_of_processes():
    def without_measured(*args):
        found = results("quickstart", *SHORT, "-p", "fifo", "-p", "least-loaded", "--seeds", "2", *args)
        return [{key: value for key, value in one.items() if key not in ("decision_s", "run_wall_s")} for one in found]

    alone, together = without_measured(), without_measured("--jobs", "2")
    assert alone == together
    assert [(one["policy"], one["seed"]) for one in alone] == [
        *(("fifo", 0), ("fifo", 1)),
        *(("least-loaded", 0), ("least-loaded", 1)),
    ]


def test_parameter_goes_to_the_policy_that_was_chosen():
    (one,) = results("quickstart", *SHORT, "--policy", "earliest-deadline", "--set", "policy.headroom=0.4")
    assert one["parameters"]["headroom"] == 0.4


def test_parameter_goes_to_the_scenarios_own_policy_when_none_was_chosen():
    (one,) = results("kaas-example", "--set", "policy.dispatch=kaas-srtf", "--set", "policy.mode=compat")
    assert one["makespan_s"] == 26


def test_own_policy_keeps_its_parameters_and_another_does_not_get_them(folder):
    document = Path(__file__).parents[2] / "src/fairlead/experiments/scenarios/kaas-example.yaml"
    Path("own.yaml").write_text(
        document.read_text().replace("{dispatch: kaas-balance}", "{dispatch: kaas-srtf, mode: compat}")
    )
    own, other = results("own.yaml", "-p", "kaas-srtf", "-p", "kaas-balance")
    assert own["parameters"] == {"mode": "compat"}
    assert other["parameters"] != own["parameters"]


def test_first_seed_can_be_given():
    assert [one["seed"] for one in results("kaas-example", "--seed", "5", "--seeds", "3")] == [5, 6, 7]


def test_sweep_runs_every_point_under_every_policy():
    found = results("kaas-load", "--set", "duration_s=50", "-p", "kaas-balance", "-p", "kaas-srtf")
    assert len(found) == 16
    assert [(one["point"], one["policy"]) for one in found[:3]] == [
        ({"rate_scale": 0.2}, "kaas-balance"),
        ({"rate_scale": 0.2}, "kaas-srtf"),
        ({"rate_scale": 0.4}, "kaas-balance"),
    ]


def test_files_are_written_and_named(folder):
    done = simulate(
        *("kaas-example", "-p", "kaas-srtf", "-p", "kaas-balance", "--report", "new/page.html"),
        *("--trace", "new/trace.json", "--json", "new/results.json", "--out", "records"),
    )
    wrote = [line.removeprefix("Wrote ") for line in done.stdout.splitlines() if line.startswith("Wrote ")]
    assert wrote == [
        "new/page.html",
        "new/trace-kaas-srtf.json",
        "new/trace-kaas-balance.json",
        "new/results.json",
        "records",
    ]
    assert all(Path(path).exists() for path in wrote)
    assert sorted(path.name for path in Path("records").iterdir()) == ["kaas-balance-seed-0", "kaas-srtf-seed-0"]
    assert "fairlead simulate kaas-example --policy kaas-srtf" in Path("new/page.html").read_text()


def test_policy_named_twice_runs_once_and_says_so():
    done = simulate("kaas-example", "-p", "fifo", "-p", "fifo", "--json", "-")
    assert len(json.loads(done.stdout)["results"]) == 1
    assert "Warning: --policy fifo was given 2 times" in done.stderr


def test_single_run_has_its_trace_where_it_was_asked_for():
    simulate("kaas-example", "--trace", "trace.json")
    assert json.loads(Path("trace.json").read_text())["otherData"]["scenario"] == "kaas-example"


def test_quiet_prints_nothing():
    done = simulate("kaas-example", "--quiet")
    assert done.output == ""


def test_table_is_plain_text_when_it_goes_to_a_file(folder):
    done = run_cli("simulate", "kaas-example", cwd=folder)
    assert "kaas" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_terminal_without_unicode_gets_a_table_too(folder):
    done = run_cli("simulate", "kaas-example", cwd=folder, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "kaas" in done.stdout


CROWDED = """
name: crowded
duration_s: 5
cluster: {nodes: [{name: n, vcpus: 4, memory_gb: 8}]}
functions:
  a: {memory_gb: 1, cold_start_s: 0.1, latency: {table: [{vcpus: 1, seconds: 0.1}]}}
  b: {memory_gb: 1, cold_start_s: 0.1, latency: {table: [{vcpus: 4, seconds: 0.1}]}}
workflows: {w: {stages: {a: [], b: [a]}, slo: {latency_s: 1}}}
arrivals: [{workflow: w, process: deterministic, rate_rps: 2}]
control_period_s: 1
policy: {dispatch: fifo}
"""


def test_a_scaler_without_room_is_named_with_what_fits_and_what_to_do(folder):
    """Four vCPUs: the replica of a takes one, and b needs all four."""
    Path("crowded.yaml").write_text(CROWDED)
    settings = ("--scaler", "static-replicas", "--set", "scaler.replicas=1")
    done = simulate("crowded.yaml", *settings, "--json", "found.json")
    (told,) = json.loads(Path("found.json").read_text())["warnings"]
    assert told.startswith(
        "fifo + static-replicas: no node had room for a replica of b (needs 4 vCPU, 1 GB); "
        "20.0 % of the requests were in time. Replicas at the end of arrivals: 1 of a, on 1 of 4 vCPUs. "
        "Let the scaler keep fewer or smaller replicas"
    )
    assert " ".join(told.split()) in " ".join(done.stderr.split())
    wide = simulate("crowded.yaml", *settings, "--set", "cluster.nodes.0.vcpus=5", "--json", "-", "--quiet")
    assert json.loads(wide.stdout)["warnings"] == []


def test_a_policy_in_a_file_of_the_working_folder_competes_in_processes_of_the_league_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from fairlead.policy.fifo import Fifo\n"
        "@dataclass\n"
        "class Mine(Fifo):\n"
        "    'First come, first served.'\n"
    )
    done = run_cli(
        *("league", "quickstart", "-p", "mine:Mine", "-p", "fifo", "--load", "0.5", "--seeds", "1", "--no-cache"),
        *("--json", "rows.json", "-q"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    shares = {row["policy"]: row["attainment"]["mean"] for row in rows["cells"]}
    assert shares["mine:Mine"] == shares["fifo"] > 0.5


@pytest.mark.parametrize(
    ("address", "text", "said"),
    [
        ("ends:Mine", "raise SystemExit(3)", "it ends the process (3)"),
        ("fairlead.policy:Policy", "", "implements neither decide nor adjust"),
    ],
)
def test_a_class_that_is_no_policy_is_wrong_use(tmp_path, monkeypatch, address, text, said):
    (tmp_path / "ends.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["simulate", "quickstart", "-p", address])
    assert done.exit_code == 2
    assert f"{address} cannot be loaded" in (told := " ".join(done.stderr.split()))
    assert said in told


def test_a_policy_of_ones_own_that_is_not_there_is_wrong_use(tmp_path):
    done = run_cli("simulate", "quickstart", "-p", "mine:Mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine:Mine cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr
