"""A full disk under the state folder: nothing is acknowledged that could not be kept, and calls that wait go on."""

import time

import pytest
from serving import kill, serving, wait_for, write_app
from small_disks import fill, mounted

APP = """
@app.function(batch=4)
def echo(items):
    return items

app.workflow("echo", echo)
"""


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "16m") as folder:
        yield folder


def test_a_full_disk_refuses_asynchronous_calls_serves_the_others_and_recovers(small_disk, tmp_path):
    app = write_app(tmp_path / "app.py", APP)
    filler = small_disk / "filler"
    with serving(app, small_disk / "state", "--policy", "fifo") as world:
        acknowledged = [world.send("echo", n).json["id"] for n in range(20)]
        fill(filler)
        large = "x" * 200_000
        refusals = []
        until = time.monotonic() + 60
        while len(refusals) < 5:  # a little still fits into what the journal has set aside
            assert time.monotonic() < until
            fill(filler)
            reply = world.send("echo", large)
            if reply.status == 202:
                acknowledged.append(reply.json["id"])
            else:
                refusals.append(reply)
        for reply in refusals:
            assert (reply.status, reply.json["error"]["code"]) == (507, "journal_full")
            assert "not accepted" in reply.message
        for n in range(200):
            assert world.call("echo", n).json["output"] == n
        for path in ("/healthz", "/metrics", "/v1/apps"):
            assert world.ask("GET", path).status == 200
        filler.unlink()
        wait_for(lambda: world.send("echo", 1).status == 202)
        for id in acknowledged:
            assert world.wait_for_end(id)["state"] == "completed"
        assert world.stop() == 0


def test_a_gateway_that_is_killed_on_a_full_disk_serves_again_once_there_is_room(small_disk, tmp_path):
    app = write_app(tmp_path / "app.py", APP)
    filler = small_disk / "filler"
    with serving(app, small_disk / "state", "--policy", "fifo") as world:
        id = world.send("echo", 1).json["id"]
        fill(filler)
        kill(world.gateway)
        time.sleep(2)
        assert world.process.poll() is None, world.err
        filler.unlink()
        assert world.call("echo", 2, timeout_s=60).json["output"] == 2
        assert world.wait_for_end(id)["state"] == "completed"
        assert world.send("echo", 3).status == 202
