"""Apps with GPU functions as real processes, on a machine whose GPUs are a stand-in for NVML."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from gpu_machine import GIB, LOST, FakeGpu, machine, mig_gpu, mps_gpu, needs_compiler
from serving import START_LIMIT_S, Serving, serving, wait_for, write_app
from typer.testing import CliRunner

from fairlead.cli import app as cli

pytestmark = needs_compiler

SHARES = """
def seen(value):
    return {name: text for name, text in os.environ.items() if name.startswith("CUDA")}

@app.function(gpu=0)
def none(value):
    return seen(value)

@app.function(gpu=1, memory_gb=0.1, vcpus=0.1)
def one(value):
    return seen(value)

@app.function(gpu=3, memory_gb=0.1, vcpus=0.1)
def three(value):
    return seen(value)

@app.function(gpu=5, memory_gb=0.1, vcpus=0.1)
def five(value):
    return seen(value)

for function in (none, one, three, five):
    app.workflow(f"ask-{function.name}", function)
"""

LOSS = """
folder = Path(os.environ["GPU_TEST"])

def hold(name):
    with open(folder / name, "a") as file:
        file.write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    while not (folder / "go").exists():
        time.sleep(0.02)
    return [os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()]

@app.function(gpu=7, memory_gb=0.1, vcpus=0.1)
def patient(value):
    return hold("patient")

app.workflow("patient-work", patient)
"""


ONCE = LOSS.replace("patient", "once").replace("gpu=7", "gpu=7, warm=0") + "app.on_loss = 'fail'\n"


def devices_of(served):
    apps = served.ask("GET", "/v1/status").json["apps"]
    (devices, *others) = [node["accelerators"] for app in apps for node in app["nodes"]]
    assert [[one["shared"] for one in other] for other in others] in ([], [[one["shared"] for one in devices]])
    return devices


def gpu_of(served, function):
    functions = [one for app in served.ask("GET", "/v1/status").json["apps"] for one in app["functions"]]
    return next(one for one in functions if one["name"] == function)["gpus"]


def run(*command, **environment):
    made = subprocess.run(
        [sys.executable, "-m", "fairlead.cli", *command],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "160"} | environment,
        timeout=START_LIMIT_S,
    )
    return made.returncode, made.stdout + made.stderr


def test_instances_get_just_their_share_of_gpus_under_mig_and_mps(tmp_path):
    made = machine(tmp_path / "machine", [mig_gpu(), mps_gpu()])
    pipes = made.start_mps()
    app = write_app(tmp_path / "app.py", SHARES)
    with serving(app, tmp_path / "state", env=made.environment | pipes) as served:
        seen = {name: served.call(f"ask-{name}").json["output"] for name in ("none", "one", "three", "five")}
        assert seen["none"] == {"CUDA_VISIBLE_DEVICES": ""}
        assert seen["five"] == {  # no MIG instance has five slices
            "CUDA_VISIBLE_DEVICES": "GPU-mps1",
            **pipes,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "71",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
        }
        assert seen["three"] == {"CUDA_VISIBLE_DEVICES": "MIG-three"}  # beside five, the other GPU has no room for it
        assert seen["one"]["CUDA_VISIBLE_DEVICES"] in ("MIG-one-a", "GPU-mps1")
        devices = devices_of(served)
        assert [device["shared"] for device in devices] == ["MIG 3+2+1+1", "7 vGPUs by MPS"]
        assert sum(device["used_vgpus"] for device in devices) == 9
        url = f"http://127.0.0.1:{served.port}"
        shown = CliRunner(env={"COLUMNS": "160"}).invoke(cli, ["nodes", "--url", url])
        assert shown.exit_code == 0
        assert "A100 GPU-mig0: MIG 3+2+1+1" in shown.output
        assert "L40S GPU-mps1: 7 vGPUs by MPS" in shown.output
        shown = CliRunner(env={"COLUMNS": "160"}).invoke(cli, ["top", "--once", "--url", url])
        assert shown.exit_code == 0
        assert "9 of 14" in shown.output


def test_work_on_a_lost_gpu_is_retried_on_another_or_fails_as_its_function_says(tmp_path):
    made = machine(tmp_path / "machine", [FakeGpu("GPU-a"), FakeGpu("GPU-b")])
    app, other = (write_app(tmp_path / f"{name}.py", code, name) for name, code in (("demo", LOSS), ("other", ONCE)))
    with serving(app, tmp_path / "state", str(other), env=made.environment | {"GPU_TEST": str(tmp_path)}) as served:
        check_loss(tmp_path, made, served)
        assert "GPU-a (lost)" in served.err
        assert "GPU-b (lost)" in served.err


def check_loss(folder, made, served):
    """Both GPUs are lost, one after the other, each in the middle of a run."""
    names = {gpu.uuid: gpu for gpu in made.gpus}

    def ran(function):
        noted = folder / function
        return noted.read_text().split() if noted.exists() else []

    sent = served.send("patient-work").json["id"]
    wait_for(lambda: len(ran("patient")) == 1, why=lambda: served.err)
    first = names[ran("patient")[0]]
    ((gpu),) = gpu_of(served, "patient")
    assert (gpu["vgpus"], gpu["memory_bytes"]) == (7.0, None)
    first.health = LOST
    made.write()
    wait_for(lambda: any(device["is_lost"] for device in devices_of(served)), why=lambda: served.err)
    wait_for(lambda: len(ran("patient")) == 2, why=lambda: served.err)
    second = names[ran("patient")[1]]
    assert second is not first
    (folder / "go").touch()
    ended = served.wait_for_end(sent)
    assert ended["state"] == "completed", ended
    uuid, pid = served.ask("GET", f"/v1/requests/{sent}/result").json["output"]
    assert uuid == second.uuid
    second.processes = [(pid, 2 * GIB, 50, "")]
    made.write()
    wait_for(lambda: gpu_of(served, "patient")[0]["memory_bytes"] == 2 * GIB)
    assert gpu_of(served, "patient")[0]["utilisation"] == 0.5
    metrics = served.ask("GET", "/metrics").body.decode()
    assert 'fairlead_instance_gpu_utilisation_ratio{app="demo",device=' in metrics
    (folder / "go").unlink()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.call, "once-work")
        wait_for(lambda: len(ran("once")) == 1, why=lambda: served.err)
        second.xids = [79]
        made.write()
        reply = asked.result(START_LIMIT_S)
    assert reply.status == 502, reply.body
    assert "the driver reported the critical error XID 79" in reply.message
    wait_for(lambda: all(device["is_lost"] for device in devices_of(served)), why=lambda: served.err)


@pytest.mark.slow
def test_an_agent_offers_its_gpus_and_reports_what_becomes_of_them(tmp_path):
    made = machine(tmp_path / "machine", [FakeGpu("GPU-a"), FakeGpu("GPU-b")])
    apps = [write_app(tmp_path / f"{name}.py", code, name) for name, code in (("demo", LOSS), ("other", ONCE))]
    with joined(tmp_path, apps, made) as served:
        check_loss(tmp_path, made, served)


@contextmanager
def joined(folder, apps, made):
    """A gateway, and an agent on a machine with GPUs."""
    socket = f"unix:{folder / 'agents.sock'}"
    options = (str(apps[1]), "--backend", "agents", "--agents-listen", socket)
    served = Serving(apps[0], folder / "state", *options, env={"GPU_TEST": str(folder)})
    token = folder / "state" / "agents.token"
    agent = None
    try:
        wait_for(lambda: token.exists(), START_LIMIT_S, lambda: served.err)
        command = ["agent", "--join", socket, "--name", "gpus", "--vcpus", "2", "--memory", "4"]
        agent = subprocess.Popen(
            [sys.executable, "-m", "fairlead.cli", *command, "--token-file", str(token), "--folder", str(folder / "a")],
            env=os.environ | made.environment | {"GPU_TEST": str(folder)},
            stderr=subprocess.DEVNULL,
        )
        yield served.wait_until_serving()
    finally:
        if agent is not None:
            agent.terminate()
            agent.wait(START_LIMIT_S)
        served.end()


def test_without_a_gpu_an_app_that_asks_for_one_is_refused_at_start(tmp_path):
    app = write_app(tmp_path / "app.py", LOSS)
    code, text = run("serve", str(app), "--port", "0", "--state", str(tmp_path / "state"), GPU_TEST=str(tmp_path))
    assert code == 1
    assert "Traceback" not in text
    assert "functions.patient: no node can hold an instance of it: it needs at least" in text
    assert "and no GPU (NVML finds no GPU: " in text
    assert "or leave gpu= out" in text


def test_a_gpu_that_was_named_and_is_not_there_is_refused_at_start(tmp_path):
    made = machine(tmp_path / "machine", [FakeGpu("GPU-a")])
    app = write_app(tmp_path / "app.py", SHARES)
    code, text = run(
        "serve", str(app), "--port", "0", "--state", str(tmp_path / "s"), "--gpus", "1", **made.environment
    )
    assert code == 1
    assert "Traceback" not in text
    assert "--gpus: this machine has no GPU '1'; there is 0 (GPU-a)." in text
