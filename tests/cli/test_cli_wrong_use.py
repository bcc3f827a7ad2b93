"""Wrong use: exit code 2, one message, no traceback, and no work begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_cli import SOURCE, run_cli
from typer.testing import CliRunner

from fairlead.cli import app

BAD = sorted((Path(__file__).parents[1] / "workload" / "bad").glob("*"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    return tmp_path


def fault(*args: str) -> str:
    """What the command says, once it has refused as it should."""
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert result.stderr.count("Error: ") == 1
    return result.stderr


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.name)
def test_bad_scenario_is_refused_by_its_name(file):
    assert file.stem in fault("simulate", str(file), "--json", "-")


def test_bad_scenario_is_refused_before_anything_slow_is_loaded():
    slow = ("numba", "scipy", "torch", "matplotlib", "fairlead.engine.sim.compiled", "fairlead.engine.live")
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from fairlead.cli import app\n"
        f"refused = CliRunner().invoke(app, ['simulate', {str(BAD[0])!r}]).exit_code\n"
        f"print(refused, [name for name in {slow!r} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"


@pytest.mark.parametrize("command", ["serve", "profile", "simulate", "plan", "league"])
def test_a_folder_without_an_app_is_refused_and_the_apps_in_it_are_named(command):
    Path("apps/shop").mkdir(parents=True)
    Path("apps/shop/app.py").touch()
    assert fault(command, "apps") == ("Error: apps: is a folder without an app.py. Name one of these: apps/shop.\n")


def test_there_are_bad_scenarios():
    assert len(BAD) > 20


def test_bad_scenario_ends_the_process_with_two(folder):
    done = run_cli("simulate", str(BAD[0]), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("logs", "--url", "http://127.0.0.1:1", "--function", "\udcff"), "'\\udcff' is no text in UTF-8"),
        (("simulate",), "quickstart"),
        (("simulate", "quikstart"), "Did you mean 'quickstart'?"),
        (("simulate", "nowhere/file.yaml"), "there is no such file"),
        (("simulate", "quickstart", "--policy", "fiffo"), "Did you mean 'fifo'?"),
        (("simulate", "quickstart", "--scaler", "fifo"), "fifo dispatches"),
        (("simulate", "quickstart", "--set", "policy"), "must be key=value"),
        (("simulate", "quickstart", "--set", "=3"), "must be key=value"),
        (("simulate", "quickstart", "--set", "nothing.here=3"), "nothing"),
        (("simulate", "quickstart", "--policy", "fifo", "--set", "policy.mode=compat"), "fifo has no such parameter"),
        (("simulate", "quickstart", "--policy", "fifo", "--set", "policy.queue_limit=many"), "policy.queue_limit"),
        (("simulate", "quickstart", "--policy", "fifo", "--set", "policy.dispatch=fifo"), "leave one out"),
        (("simulate", ""), "Name a scenario"),
        (("simulate", "quickstart", "--policy", "fifo,least-loaded"), "--policy fifo --policy least-loaded"),
        (("simulate", "quickstart", "--scaler", "x"), "--scaler none is without"),
        (("simulate", "quickstart", "--seeds", "0"), "'--seeds': must be a whole number of at least 1; got '0'"),
        (("simulate", "quickstart", "--seeds", "abc"), "'--seeds': must be a whole number of at least 1; got 'abc'"),
        (("simulate", "quickstart", "--jobs", "0"), "--jobs"),
        (("simulate", "quickstart", "--seed", "-1"), "at least 0; got '-1'"),
        (("simulate", "quickstart", "--report", "."), "is a folder; a file is needed"),
        (("simulate", "quickstart", "--report", "-"), "for --json only"),
        (("simulate", "quickstart", "--report", "a.b", "--json", "./a.b"), "name the same file"),
        (("policies", "fiffo"), "Did you mean 'fifo'?"),
        (("report", "nowhere"), "no run is here"),
        (("report", "nowhere"), "`fairlead simulate --out` and `fairlead serve` write runs"),
        (("report",), "Missing argument"),
        (("reproduce", "no-such-thing"), "no-such-thing"),
        (("reproduce",), "Name what to reproduce"),
        (("simulatee",), "Did you mean"),
        (("load", "http://127.0.0.1:1/x", "--rate", "nan"), "--rate must be positive and finite; got nan."),
        (("load", "http://127.0.0.1:1/x", "--rate", "1", "--duration", "-3s"), "--duration must be a positive"),
        (("load", "http://127.0.0.1:1/x", "--rate", "1", "--deadline-ms", "nan"), "--deadline-ms must be positive"),
        (("load", "http://127.0.0.1:1/x", "--rate", "1", "--warm-up", "20s"), "--warm-up must be in [0, --duration)"),
        (("load", "http://127.0.0.1:1/x", "--rate", "1e9"), "--rate x --duration is"),
        (("load", "http://127.0.0.1:1/x", "--arrivals", "."), "cannot be read: Is a directory"),
        (("load", "http://127.0.0.1:1/x", "--arrivals", "/dev/null"), "holds no arrival"),
        (("load", "http://127.0.0.1:1/x", "--rate", "1", "--token-file", "/dev/null"), "is empty"),
        (("load", "http://127.0.0.1:1/x", "--rate", "1", "--cacert", "x"), "--cacert is for an https:// URL"),
        (("load", "https://127.0.0.1:1/x", "--rate", "1", "--cacert", "x"), "cannot be read: No such file"),
        (("load", "https://127.0.0.1:1/x", "--rate", "1", "--cacert", "/dev/null"), "holds no certificate"),
        (("load", "http://127.0.0.1:1/\udce9", "--rate", "1"), "the URL must look like"),
        (("load", "http://127.0.0.1:1", "--rate", "1", "--input", "{"), "must be JSON"),
        (("load", "http://127.0.0.1:1", "--rate", "1", "--input", "NaN"), "JSON has no NaN"),
        (("load", "http://127.0.0.1:1", "--rate", "1", "--inputs", "/dev/null"), "one JSON value per line"),
        (("load", "http://127.0.0.1:1", "--rate", "1", "--input", "1", "--inputs", "x"), "leave one out"),
        (("top", "--url", "http://127.0.0.1:1", "--state", "x"), "leave one out"),
        (("top", "--every", "nan"), "--every must be from 0.1"),
        (("explain", "9" * 5000), "No request '999"),
        (("explain", "app-1-" + "9" * 5000), "No request 'app-1-999"),
        (("explain", "1", "--cacert", "x"), "--cacert is for --url https://"),
        (("serve", __file__, "--limit", "stall_limit_s=inf"), "--limit stall_limit_s must be a positive number"),
        (("serve", __file__, "--limit", "max_items=-1"), "--limit max_items must be a positive whole number"),
        (("serve", __file__, "--limit", "max_items=" + "9" * 5000), "--limit max_items must be"),
        (("serve", __file__, "--max-body-mb", "nan"), "--max-body-mb must be a positive number"),
        (("serve", __file__, "--max-body-mb", "inf"), "--max-body-mb must be a positive number"),
        (("serve", __file__, "--nodes", "x.yaml", "--device", "numpy"), "do not go with --nodes"),
        (("serve", __file__, "--nodes", "x.yaml", "--device-memory", "1MB"), "do not go with --nodes"),
        (("kaas", "check", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
        (("kaas", "check", "."), "cannot be read: Is a directory"),
        (("kaas", "check"), "Missing argument"),
        (("kaas", "run", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
        (("kaas", "run", "x.json", "--device", "gpu"), "--device must be such as 'opencl:0'"),
        (("kaas", "run", "x.json", "--repeat", "0"), "--repeat"),
        (("kaas", "export", "nowhere.py"), "There is no file nowhere.py"),
        (("kaas", "export", __file__, "-o", "graph.txt"), "must end in .json"),
        (("serve", __file__, "--limits", "x"), "--limits must be one of cgroup-v2, cgroup-v1, affinity"),
        (("serve", __file__, "--backend", "rays"), "--backend must be one of local, agents, ray; got 'rays'"),
        (("serve", __file__, "--grow", "cpu=1..2"), "--grow need --backend ray"),
        (
            ("serve", __file__, "--backend", "ray", "--address", "127.0.0.1:1", "--grow", "cpu=2..1"),
            "KIND=LEAST..MOST",
        ),
        (("serve", __file__, "--backend", "ray", "--address", "x"), "--address must be HOST:PORT"),
        (("serve", __file__, "--backend", "ray", "--address", "h:1", "--ray-share", "CPU"), "RESOURCE=AMOUNT"),
        (("serve", __file__, "--backend", "ray", "--ray-reserve", "x"), "--ray-reserve must be one of node, instance"),
        (("profile", __file__, "--backend", "ray", "--limits", "affinity"), "does not go with --backend ray"),
        (("profile", __file__, "--backend", "ray", "--host", "--address", "x"), "--address must be HOST:PORT"),
        (("serve", __file__, "--backend", "agents", "--port", "0", "--agents-listen", "x"), "must be HOST:PORT"),
        (
            ("serve", __file__, "--backend", "agents", "--port", "0", "--agents-listen", "10.0.0.1:1"),
            "other machines can reach it, so it needs TLS",
        ),
        (("agent",), "--join"),
        (("agent", "--join", "x"), "--join 'x' must be HOST:PORT"),
        (("agent", "--join", "127.0.0.1:1"), "A token is needed: give --token-file"),
        (("agent", "--join", "127.0.0.1:1", "--token-file", "nowhere"), "cannot be read as a token"),
        (("agent", "--join", "10.0.0.1:1"), "Give --cacert with its CA"),
        (("agent", "--join", "127.0.0.1:1", "--cacert", "nowhere"), "cannot be used for TLS"),
        (("agent", "--join", "127.0.0.1:1", "--certfile", "x"), "--certfile and --keyfile belong together"),
        (("agent", "--join", "127.0.0.1:1", "--name", "a b"), "--name must be letters"),
        (("agent", "--join", "127.0.0.1:1", "--vcpus", "0"), "--vcpus must be positive"),
        (("agent", "--join", "127.0.0.1:1", "--speed", "0"), "--speed must be positive"),
        (("agent", "--join", "127.0.0.1:1", "--limits", "x"), "--limits must be one of"),
        (("serve", __file__, "--callback-allow", "::"), "callback allow-list: '::' is not of the form"),
        (("serve", __file__, "--port", "0", "--host", "nowhere.invalid"), "Check --host and --port."),
        (("serve", __file__, "--port", "0", "--host", "x" * 300), "Check --host and --port."),
        (("profile", __file__, "--budget", "²"), "--budget must be a positive duration"),
    ],
    ids=lambda value: " ".join(value).replace("/", ":")[:80] if isinstance(value, tuple) else "",
)
def test_wrong_use_is_explained(args, expected):
    assert expected in fault(*args)


def test_parameter_must_suit_every_policy_that_was_chosen():
    message = fault("simulate", "quickstart", "-p", "fifo", "-p", "kaas-srtf", "--set", "policy.mode=compat")
    assert "fifo has no such parameter" in message
    assert "kaas-srtf has no" not in message


@pytest.mark.parametrize("option", ["--json", "--report", "--trace"])
def test_file_below_a_file_is_refused_before_the_run(option):
    Path("file").touch()
    assert "cannot be written" in fault("simulate", "quickstart", option, "file/below")


def test_records_need_a_folder():
    Path("file").touch()
    assert "a folder is needed" in fault("simulate", "quickstart", "--out", "file")


def test_checked_paths_leave_nothing_behind():
    fault("simulate", "quikstart", "--report", "page.html", "--json", "results.json")
    assert list(Path().iterdir()) == []


def test_file_named_without_its_ending_is_pointed_to():
    Path("own.yaml").touch()
    assert "there is a file own.yaml" in fault("simulate", "own")


@pytest.mark.parametrize("policy", [(), ("-p", "fifo")], ids=["own-policy", "chosen-policy"])
def test_misspelt_name_in_a_setting_is_what_is_asked_about(policy):
    message = fault("simulate", "quickstart", *policy, "--set", "functions.detct.memory_gb=1")
    assert "functions.detct.latency: is missing. Without --set functions.detct.memory_gb=1" in message


def test_experiment_is_looked_up_before_anything_is_begun():
    assert "Reproducing" not in fault("reproduce", "no-such-thing")


def test_a_link_that_leads_to_itself_is_no_run(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "loop")])
    assert result.exit_code == 2
    assert "no run is here" in result.output
