"""`fairlead serve --backend ray`: an app on three raylets, whose parts die, and whose nodes come and go."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress

import pytest
from ray_cluster import agents, raylets, serving_on
from serving import TOKEN, Serving, command, descendants, is_alive, kill, wait_for, write_app
from tiny_wheels import wheel

pytestmark = pytest.mark.ray

APP = """
@app.function
def work(key):
    return [key, os.getpid()]

@app.function
def make(size):
    return "x" * size

@app.function
def count(text):
    return len(text)

app.workflow("work", work, slo="5s")
app.workflow("size", make >> count, slo="5s")
"""
SLOW = {"labels": {"fairlead.io/kind": "slow", "fairlead.io/speed": "0.5"}}


KERNELS = """
from fairlead.kaas import graphs
made = graphs.digits()
digits = app.kernel("digits", made.graph, made.constants)

@app.function
def image(number):
    return [[float(number)] * 8] * 8

@app.function
def shares(found):
    return found.tolist()

app.workflow("read", image >> digits >> shares, slo="60s")
"""


@pytest.fixture(scope="module")
def cluster():
    with raylets(others=({}, SLOW)) as made:
        yield made


@pytest.fixture
def served(cluster, tmp_path):
    with serving_on(cluster.address, tmp_path, code=APP) as made:
        yield made


def nodes(served: Serving) -> dict[str, str]:
    """The kind of each node that is up, by name."""
    found = served.ask("GET", "/v1/nodes").json["nodes"]
    return {node["name"]: node["kind"] for node in found if node["state"] == "up"}


def test_an_app_is_served_and_outlives_its_parts(cluster, served):
    assert sorted(nodes(served).values()) == ["cpu", "cpu", "slow"]
    assert served.call("size", 300_000).json["output"] == 300_000

    before = served.call("work", 1).json["output"][1]
    gateway = served.serving_gateway
    assert gateway is not None
    kill(gateway)
    wait_for(lambda: served.serving_gateway not in (None, gateway), 60)
    wait_for(lambda: len(nodes(served)) == 3, 60, lambda: served.err)
    assert served.call("work", 2).status == 200
    assert is_alive(before), "the instances of the former gateway were not adopted"

    victim = agents()[0]
    kill(victim)
    wait_for(lambda: len(nodes(served)) < 3 or victim not in agents(), 60)
    assert served.call("work", 3).status == 200
    wait_for(lambda: len(nodes(served)) == 3, 60, lambda: served.err)

    driver = next(pid for pid in descendants(served.process.pid) if "fairlead.engine.live.ray.driver" in command(pid))
    kill(driver)
    assert served.call("work", 4).status == 200
    wait_for(lambda: "ray.driver" in "".join(map(command, descendants(served.process.pid))), 60)


@pytest.mark.ray_long
def test_nodes_come_and_go(cluster, served):
    known = nodes(served)
    more = cluster.add(labels={"fairlead.io/kind": "late"})
    wait_for(lambda: len(nodes(served)) == 4, 60, lambda: served.err)
    (name,) = set(nodes(served)) - set(known)
    assert nodes(served)[name] == "late"
    assert served.ask("POST", f"/v1/nodes/{name}/drain").status == 202
    wait_for(lambda: name not in nodes(served) and len(agents()) == 3, 60, lambda: served.err)
    time.sleep(3)
    assert len(agents()) == 3, "a node that was given back is used again"
    cluster.remove(more)
    assert served.call("work", 5).status == 200


@pytest.mark.ray_long
def test_a_raylet_that_dies_takes_its_node_and_nothing_else(cluster, served):
    more = cluster.add()
    wait_for(lambda: len(nodes(served)) == 4, 60, lambda: served.err)
    cluster.remove(more)
    wait_for(lambda: len(nodes(served)) == 3, 60, lambda: served.err)
    assert served.call("work", 6).status == 200


def test_a_stopped_server_leaves_nothing_at_ray(cluster, served):
    assert len(agents()) == 3
    assert served.stop() == 0
    wait_for(lambda: not agents(), 30)


@pytest.mark.ray_long
def test_serving_goes_on_while_rays_own_state_is_gone(tmp_path, monkeypatch):
    """With storage, new nodes are used again after the GCS is back; requests do not notice."""
    monkeypatch.setenv("RAY_gcs_storage", "rocksdb")
    monkeypatch.setenv("RAY_gcs_storage_path", str(tmp_path / "gcs"))
    (tmp_path / "gcs").mkdir()
    with raylets(others=({},)) as made, serving_on(made.address, tmp_path, code=APP) as served:
        assert len(nodes(served)) == 2
        made.kill_gcs()
        until = time.monotonic() + 8
        while time.monotonic() < until:
            assert served.call("work", 7).status == 200
        assert len(nodes(served)) == 2
        made.start_gcs()
        made.add()
        wait_for(lambda: len(nodes(served)) == 3, 90, lambda: served.err)
        assert served.call("work", 8).status == 200


REHEARSED = """
@app.function
def work(key):
    return sum(range(20_000))

app.workflow("work", work, slo="1s", example=1)
"""


@pytest.mark.ray_long
def test_an_app_is_rehearsed_on_the_cluster_and_predicted_there(cluster, tmp_path):
    """All raylets are of this machine, so that they share its cores; a prediction has their nodes."""
    app = str(write_app(tmp_path / "app.py", REHEARSED))
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    fairlead = [sys.executable, "-m", "fairlead.cli"]
    measuring = [*fairlead, "profile", app, "--quick", "--host", "--policy", "fairlead", "--backend", "ray"]
    subprocess.run([*measuring, "--address", cluster.address], check=True, cwd=tmp_path, env=env)
    measured = json.loads((tmp_path / "app.profile.json").read_text())
    assert len(measured["nodes"]) == 3
    assert all("machine" not in node["link"] for node in measured["nodes"])
    assert measured["served"]["capacity_rps"] > 0
    (point,) = [each for each in measured["functions"]["work"]["points"] if "kind" not in each]
    assert point["cpu_s"] > 0
    said = subprocess.run(
        [*fairlead, "simulate", app, "--set", "duration_s=5", "--json", "-"],
        check=True,
        cwd=tmp_path,
        env=env,
        capture_output=True,
    ).stdout
    assert json.loads(said)["results"][0]["completed"] > 0


@pytest.mark.ray_long
def test_profiles_are_measured_on_each_kind_of_node(cluster, tmp_path):
    app = write_app(tmp_path / "app.py", APP.replace('work, slo="5s"', 'work, slo="5s", example=1'))
    command = [sys.executable, "-m", "fairlead.cli", "profile", app, "--quick", "--function", "work"]
    subprocess.run([*command, "--backend", "ray", "--address", cluster.address], check=True, timeout=120)
    points = json.loads((tmp_path / "app.profile.json").read_text())["functions"]["work"]["points"]
    assert [point.get("kind") for point in points] == [None, "cpu", "slow"]
    assert all(point["mean_s"] > 0 for point in points)
    wait_for(lambda: not agents(), 150)


@pytest.mark.ray_long
def test_instances_run_with_the_requirements_of_the_app(tmp_path):
    wheel = tmp_path / "ray_extra-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: ray-extra\nVersion: 1.0\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {"ray_extra.py": "ANSWER = 42\n", "ray_extra-1.0.dist-info/METADATA": about}
    texts |= {"ray_extra-1.0.dist-info/WHEEL": tags, "ray_extra-1.0.dist-info/RECORD": ""}
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in texts.items():
            file.writestr(name, text)
    (tmp_path / "requirements.txt").write_text(f"ray-extra @ {wheel.as_uri()}\n")
    code = "@app.function\ndef extra(value):\n    import ray_extra\n    return ray_extra.ANSWER\n"
    code += 'app.workflow("extra", extra)\n'
    with (
        raylets(others=()) as made,
        serving_on(made.address, tmp_path, "--ray-pip", str(tmp_path / "requirements.txt"), code=code) as served,
    ):
        assert served.call("extra", 1).json["output"] == 42


VERSIONED = """
app = App("demo", requirements=[{requirement!r}])

@app.function(start_limit_s="300s")
def make(size):
    import tiny_part
    return [tiny_part.VERSION, "x" * size]

@app.function(start_limit_s="300s")
def count(made):
    import tiny_part
    return [*made[:1], tiny_part.VERSION, len(made[1])]

app.workflow("size", make >> count, slo="5s")
"""


@pytest.mark.ray_long
def test_each_version_of_an_app_has_its_own_packages_on_the_nodes(cluster, tmp_path):
    code = VERSIONED.format(requirement=wheel(tmp_path, 1))
    with serving_on(cluster.address, tmp_path, "--allow-deploy", code=code, token=TOKEN) as served:
        assert served.call("size", 3_000_000).json["output"] == [1, 1, 3_000_000]
        source = "from fairlead.app import App\n" + VERSIONED.format(requirement=wheel(tmp_path, 2))
        changed = served.ask("PUT", "/v1/apps/demo", {"source": source})
        assert changed.status == 200, changed.body
        assert served.call("size", 3_000_000).json["output"] == [2, 2, 3_000_000]


@pytest.mark.ray_long
def test_a_frozen_node_is_given_up_long_before_ray_notices(cluster, served):
    """Its agent and instances stand still with their connections open, as on a machine that hangs."""
    victim = agents()[0]
    frozen = [victim, *descendants(victim)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: len(nodes(served)) == 2, 30, lambda: served.err)
        assert "it has been silent for" in served.err
        assert served.call("work", 9).status == 200
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    wait_for(lambda: len(nodes(served)) == 3, 60, lambda: served.err)


@pytest.mark.ray_long
def test_kernels_run_on_the_nodes_of_a_cluster(cluster, tmp_path):
    options = ("--device", "numpy", "--device-memory", "64MB")
    with serving_on(cluster.address, tmp_path, *options, code=KERNELS) as served:
        answers = [served.call("read", number).json["output"] for number in (3, 3, 9)]
        assert answers[0] == answers[1] != answers[2]
        assert sum(answers[0][0]) == pytest.approx(1, abs=1e-5)
        wait_for(lambda: sum(one["runs"] for one in served.ask("GET", "/v1/status").json["devices"]) == 3)
