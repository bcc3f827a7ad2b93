"""What is served is the source as it was deployed; accepted requests wait for an app that is not served."""

import json
import subprocess
import sys

from serving import TOKEN, kill, serving, wait_for, write_app

APP = """
import helper

@app.function(batch=4)
def answer(items):
    data = Path(__file__).with_name("data.txt").read_text()
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return [["app-1", helper.WORD, data]] * len(items)

app.workflow("answer", answer)
"""
FIRST = ["app-1", "helper-1", "data"]


def write(folder):
    folder.mkdir()
    (folder / "helper.py").write_text("WORD = 'helper-1'\n")
    (folder / "data.txt").write_text("data")
    return write_app(folder / "app.py", APP)


def test_a_generation_never_sees_later_edits_and_a_restart_serves_what_was_served(tmp_path):
    app, state = write(tmp_path / "app"), tmp_path / "state"
    hold = tmp_path / "app" / "hold"
    with serving(app, state, "--policy", "fifo", "--no-records") as world:
        assert world.call("answer").json["output"] == FIRST
        (tmp_path / "app" / "helper.py").write_text("WORD = 'helper-2'\n")
        app.write_text(app.read_text().replace("app-1", "app-2"))
        (before,) = world.instances
        kill(before)
        wait_for(lambda: world.instances not in ([], [before]), 60)
        assert world.call("answer", timeout_s=60).json["output"] == FIRST  # another instance, the same generation

        hold.touch()
        ids = [world.send("answer", n).json["id"] for n in range(60)]
        app.write_text("def broken(:\n")
        kill(world.gateway)
        wait_for(lambda: world.serving_gateway is not None, 60)
        hold.unlink()
        assert {world.wait_for_end(id, 60)["state"] for id in ids} == {"completed"}
        assert world.call("answer").json["output"] == FIRST

        app.unlink()
        (tmp_path / "app" / "helper.py").unlink()
        kill(world.gateway)
        assert world.call("answer", timeout_s=60).json["output"] == FIRST
        assert len(list((state / "sources").iterdir())) == 1
        last = world.call("answer").json["id"]
    assert last.startswith("demo-3-")  # generations are counted also where no records are kept


def test_a_broken_file_is_refused_at_the_start_and_loses_nothing(tmp_path):
    app, state = write(tmp_path / "app"), tmp_path / "state"
    (tmp_path / "app" / "hold").touch()
    with serving(app, state, "--policy", "fifo", "--drain", "0.1s") as world:
        id = world.send("answer", 1).json["id"]
        assert world.stop() == 0
    good = app.read_text()
    app.write_text("def broken(:\n")
    command = [sys.executable, "-m", "fairlead.cli", "serve", str(app), "--port", "0", "--state", str(state)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert f"{app}: line 1: SyntaxError" in refused.stderr
    assert "Traceback" not in refused.stderr
    (tmp_path / "app" / "hold").unlink()
    app.write_text(good.replace("app-1", "app-2"))
    with serving(app, state, "--policy", "fifo") as world:
        assert world.wait_for_end(id, 60)["state"] == "completed"
        assert world.ask("GET", f"/v1/requests/{id}/result").json["output"] == ["app-2", "helper-1", "data"]


FRAGILE = """
def load():
    assert not Path(__file__).with_name("away").exists(), "its model is away"

@app.function(setup=load)
def work(_, x):
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return x

app.workflow("work", work)
"""
OTHER = "@app.function()\ndef echo(x):\n    return x\napp.workflow('echo', echo)\n"


def test_requests_of_an_app_that_is_not_served_wait_for_it_until_it_is_removed(tmp_path):
    fragile, state = write_app(tmp_path / "fragile.py", FRAGILE, "fragile"), tmp_path / "state"
    other = write_app(tmp_path / "other.py", OTHER, "other")
    (tmp_path / "hold").touch()
    with serving(fragile, state, "--policy", "fifo", "--drain", "0.1s") as world:
        first, second, third = (world.send("work", n).json["id"] for n in range(3))
        assert world.stop() == 0
    (tmp_path / "hold").unlink()
    (tmp_path / "away").touch()
    with serving(other, state, "--policy", "fifo", "--drain", "0.1s") as world:
        assert world.call("echo", 1).json["output"] == 1
        assert "fragile, which was served before, is not served now" in world.err
        assert [world.state_of(id)["state"] for id in (first, second, third)] == ["accepted"] * 3
        assert world.ask("DELETE", f"/v1/requests/{third}").status == 202
        assert world.stop() == 0
    (tmp_path / "away").unlink()
    (tmp_path / "hold").touch()
    with serving(other, state, "--policy", "fifo", "--drain", "0.1s", token=TOKEN) as world:  # served again, as it was
        assert "fragile" in json.dumps(world.ask("GET", "/v1/apps").json)
        (tmp_path / "hold").unlink()
        assert world.wait_for_end(first, 60)["state"] == "completed"
        assert world.wait_for_end(second, 60)["attempts"] == 2
        assert world.state_of(third)["state"] == "cancelled"
        (tmp_path / "hold").touch()
        fourth = world.send("work", 4).json["id"]
        assert world.stop() == 0
    (tmp_path / "away").touch()
    with serving(other, state, "--policy", "fifo", "--allow-deploy", token=TOKEN) as world:
        assert world.state_of(fourth)["state"] == "accepted"
        assert world.ask("DELETE", "/v1/apps/fragile").status == 200
        ended = world.state_of(fourth)
        assert (ended["state"], ended["reason"]) == (
            "failed",
            "the app 'fragile' was removed before the request could run",
        )
        assert world.ask("DELETE", "/v1/apps/fragile").status == 404
