"""`fairlead profile` on real apps: real instances, real limits, the file, the picture, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import fairlead
from fairlead.app.describe import describe
from fairlead.app.scenario import profile_beside, scenario_of
from fairlead.cli import app
from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.limits.hierarchies import find_hierarchies
from fairlead.model import Configuration
from fairlead.profile.measured import read_measured

HAS_GROUPS = make_limiter().kind != "affinity"

APP = """
    import time
    from fairlead.app import App, each

    app = App("demo")

    def model():
        time.sleep(0.1)
        return 3

    @app.function(batch=8, vcpus=(0.5, 1), setup=model, memory_gb=1)
    def classify(model, items):
        time.sleep(0.02 + 0.01 * len(items))
        return [item * model for item in items]

    @app.function
    def split(count):
        return list(range(count))

    @app.function
    def pack(items):
        held = bytearray(60 * 2**20)
        return "x" * 200_000

    app.workflow("main", split >> each(classify) >> pack, slo="500ms", example=3)
"""
CLASSIFY = """
    @app.function
    def {name}(value):
        {body}

    app.workflow("{name}", {name}, example=1)
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fairlead.__file__).parents[1]), "COLUMNS": "100"}


def run(*args, cwd):
    return subprocess.run(
        [sys.executable, "-m", "fairlead", "profile", *args],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def write(folder, text, *more):
    (folder / "app.py").write_text(textwrap.dedent(text) + "".join(textwrap.dedent(part) for part in more))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One measuring, looked at from several sides."""
    folder = tmp_path_factory.mktemp("profiled")
    write(folder, APP)
    done = run("app.py", "--budget", "4s", "--figure", "picture.svg", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_file_beside_the_app_says_how_long_everything_takes(measured):
    folder, _ = measured
    functions = read_measured(folder / "app.profile.json").functions
    assert list(functions) == ["classify", "split", "pack"]
    classify = functions["classify"]
    assert {(p.batch, p.vcpus) for p in classify.points} == {(b, c) for b in (1, 2, 4, 8) for c in (0.5, 1.0)}
    for point in classify.points:  # it sleeps 20 + 10n ms; a busy machine adds to that, so that predictions vary
        assert point.is_predicted or point.mean_s > 0.9 * (0.02 + 0.01 * point.batch)


def test_a_measured_point_has_percentiles_and_a_predicted_one_has_none(measured):
    folder, _ = measured
    points = read_measured(folder / "app.profile.json").functions["classify"].points
    for point in points:
        if point.is_predicted:
            assert (point.count, point.p50_s) == (0, None)
        else:
            assert point.count >= 2
            assert point.p50_s <= point.p95_s <= point.p99_s
    assert sum(not point.is_predicted for point in points) >= 1


def test_a_cold_start_is_the_sum_of_its_parts(measured):
    folder, _ = measured
    cold = read_measured(folder / "app.profile.json").functions["classify"].cold_start
    assert cold.setup_s >= 0.1
    assert cold.process_s + cold.load_s + cold.setup_s == pytest.approx(cold.mean_s)
    assert cold.p95_s >= cold.mean_s * 0.99


def test_memory_and_output_are_what_the_function_held_and_gave(measured):
    folder, _ = measured
    pack = read_measured(folder / "app.profile.json").functions["pack"]
    assert 0.06 < pack.memory_gb < 0.5
    assert pack.output_mb == pytest.approx(200_000 / 2**20, rel=0.01)


def test_what_was_measured_is_what_the_app_is_simulated_and_served_with(measured):
    folder, _ = measured
    profiles = profile_beside(folder / "app.py")
    scenario = scenario_of(describe(folder / "app.py"), profiles=profiles)
    assert scenario.profiles["classify"].latency_s(Configuration(8, 1.0), "local") > 0.0216
    assert scenario.profiles["classify"].cold_start_s > 0.1


def test_the_picture_and_the_table_show_every_function(measured):
    folder, done = measured
    picture = ElementTree.parse(folder / "picture.svg").getroot()
    texts = " ".join(picture.itertext())
    for name in ("classify", "split", "pack", "1 vCPU", "measured"):
        assert name in texts
    for part in ("8x 1 vCPU", "held-out", "cold start", "Wrote app.profile.json", "Next: fairlead serve app.py"):
        assert part in done.stdout
    assert "Measuring demo" in done.stderr


def test_nothing_is_left_behind(tmp_path):
    write(tmp_path, APP)
    command = [sys.executable, "-m", "fairlead", "profile", "app.py", "--budget", "60s", "-q"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: is_measuring(process.pid))
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
        assert "Interrupted" in process.stderr.read()
    assert process.returncode == 130
    assert traces_of(process.pid) == []
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


def traces_of(pid):
    """What a run of this process keeps outside of itself: shared memory, and control groups."""
    groups = [base for hierarchy in find_hierarchies() for base in hierarchy.bases()]
    found = list(Path("/dev/shm").glob(f"fairlead-{pid}-*"))
    return found + [path for base in groups for path in base.glob(f"fairlead-*-{pid}-*")]


def is_measuring(pid):
    """Whether it keeps both, where it can: groups alone it also makes to find out whether it can."""
    kinds = {"memory" if path.is_relative_to("/dev/shm") else "groups" for path in traces_of(pid)}
    return kinds == ({"memory", "groups"} if HAS_GROUPS else {"memory"})


def wait_for(is_so):
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_one_function_can_be_measured_again_and_the_others_are_kept(tmp_path):
    write(tmp_path, APP)
    assert run("app.py", "--budget", "1s", "--function", "split", "-q", cwd=tmp_path).returncode == 0
    first = read_measured(tmp_path / "app.profile.json").functions
    assert list(first) == ["split"]
    done = run("app.py", "--budget", "1", "--function", "pack", "--json", "-", cwd=tmp_path)
    assert done.returncode == 0
    second = json.loads(done.stdout)
    assert second["format"] == 1
    assert list(second["functions"]) == ["split", "pack"]
    assert read_measured(tmp_path / "app.profile.json").functions["split"] == first["split"]


def test_functions_that_fail_hang_or_are_never_called_are_named_and_the_rest_is_kept(tmp_path):
    write(
        tmp_path,
        APP,
        CLASSIFY.format(name="raises", body="raise ValueError('no such picture')"),
        CLASSIFY.format(name="leaves", body="import os; os._exit(3)"),
        """
    @app.function(run_limit_s=0.3)
    def hangs(value):
        time.sleep(60)

    app.workflow("hangs", hangs, example=1)

    @app.function
    def unused(value):
        return value

    app.workflow("without", unused)
    """,
    )
    done = run("app.py", "--quick", "--budget", "3", cwd=tmp_path)
    assert done.returncode == 1
    for part in (
        "raises was not measured: ValueError: no such picture",
        "leaves was not measured: it exited with code 3",
        "hangs was not measured: a run did not end within 0.3 s",
        "unused was not measured: workflow 'without' has no example to call it with; declare it with example=",
    ):
        assert part in done.stderr
    assert list(read_measured(tmp_path / "app.profile.json").functions) == ["classify", "split", "pack"]


@pytest.mark.skipif(not HAS_GROUPS, reason="no control groups can be made here")
def test_a_quarter_of_a_vcpu_takes_longer_where_there_is_work(tmp_path):
    write(
        tmp_path,
        """
    import time
    from fairlead.app import App

    app = App("busy")

    @app.function(vcpus=(0.25, 1))
    def work(value):
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass

    app.workflow("main", work, example=1)
    """,
    )
    assert run("app.py", "--budget", "2s", "-q", cwd=tmp_path).returncode == 0
    quarter, _ = read_measured(tmp_path / "app.profile.json").functions["work"].points
    assert quarter.mean_s > 0.06  # 20 ms at a quarter: 80 ms, but the first quarter of a period is free


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ((), 2, "Name an app file"),
        (("none.py",), 2, "none.py: cannot be read"),
        (("app.py", "--function", "clasify"), 2, "No function of demo named 'clasify'. Did you mean 'classify'?"),
        (("app.py", "--budget", "soon"), 2, "--budget must be a positive duration"),
        (("app.py", "--limits", "docker"), 2, "--limits: limits must be one of"),
        (("app.py", "--figure", "-"), 2, "--figure needs a file"),
        (("app.py", "--out", "app.py/x.json"), 2, "--out app.py/x.json: cannot be written"),
    ],
)
def test_wrong_use_is_said_at_once(tmp_path, monkeypatch, args, code, message):
    write(tmp_path, APP)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["profile", *args])
    assert done.exit_code == code
    assert message in done.output
    assert not (tmp_path / "app.profile.json").exists()
