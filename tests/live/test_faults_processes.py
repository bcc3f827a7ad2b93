"""kill -9 of instances, of the gateway, and of everything: what was accepted is answered, and nothing is left over."""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest
from serving import is_alive, journal_rows, kill, serving, wait_for, write_app

APP = """
@app.function(batch=4)
def slow(items):
    time.sleep(0.1)
    return [os.getpid() for _ in items]

@app.function
def note(key):
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    with open(Path(__file__).with_name("done.txt"), "a") as file:
        file.write(key + "\\n")
    time.sleep(0.03)
    return key

@app.function
def parent(x):
    from multiprocessing import Process
    child = Process(target=time.sleep, args=(600,))
    child.start()
    return child.pid

for function in list(app.functions.values()):
    app.workflow(function.name, function)
"""


@pytest.fixture
def app(tmp_path):
    return write_app(tmp_path / "app.py", APP)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    with serving(write_app(folder / "app.py", APP), folder / "state", "--policy", "fifo") as served:
        yield served


def groups_of(pid: int) -> list[Path]:
    """Control groups that carry this process in their name."""
    roots = [Path("/sys/fs/cgroup"), *(path for path in Path("/sys/fs/cgroup").glob("*") if path.is_dir())]
    return [path for root in roots for path in root.glob(f"**/fairlead-*-{pid}-*") if path.is_dir()]


def shared_memory_of(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"fairlead-{pid}-")]


def executions(app: Path) -> Counter[str]:
    return Counter(app.with_name("done.txt").read_text().split())


def test_requests_of_an_instance_that_is_killed_while_it_works_are_answered_by_another(world):
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(world.call, "slow", n) for n in range(40)]
        for _ in range(3):
            time.sleep(0.25)
            kill(world.call("slow").json["output"])
        replies = [call.result() for call in calls]
    assert Counter(reply.status for reply in replies) == {200: 40}
    assert len({reply.json["output"] for reply in replies}) > 1


def test_the_pool_refills_after_every_instance_was_killed(world):
    before = world.instances
    assert len(before) >= 3  # one of each function, and what the load before this called for
    for pid in before:
        kill(pid)
    wait_for(lambda: len(world.instances) >= 3 and not set(world.instances) & set(before))
    assert world.call("slow").status == 200
    assert not any(map(is_alive, before))


def test_a_gateway_that_is_killed_under_load_is_replaced_while_connections_wait(world, capsys):
    gateway, former = world.gateway, world.instances
    child = world.call("parent").json["output"]
    replies: list[tuple[float, int]] = []  # when it was asked, and the status; 0 where the connection broke
    stop = threading.Event()

    def user() -> None:
        while not stop.is_set():
            asked = time.monotonic()
            try:
                replies.append((asked, world.call("slow").status))
            except (OSError, HTTPException):
                replies.append((asked, 0))
                time.sleep(0.05)

    users = [threading.Thread(target=user) for _ in range(4)]
    for each in users:
        each.start()
    try:
        time.sleep(0.5)
        ids = [world.send("note", f"k{n}").json["id"] for n in range(50)]
        began = time.monotonic()
        kill(gateway)
        wait_for(lambda: not is_alive(gateway))
        gone = time.monotonic()
        reply = world.call("slow", timeout_s=60)
        took_s = time.monotonic() - began
        wait_for(lambda: any(asked > gone for asked, _ in replies))
    finally:
        stop.set()
        for each in users:
            each.join()
    assert reply.status == 200
    with capsys.disabled():  # a figure worth seeing, in every log
        print(  # noqa: T201
            f"\nfirst answer {took_s:.2f} s after the gateway was killed"
        )
    assert {status for asked, status in replies if asked > gone} == {200}, (
        "whoever came while there was no gateway was served by the next"
    )
    assert world.gateway not in (None, gateway)
    for id in ids:
        assert world.wait_for_end(id)["state"] == "completed"
    wait_for(lambda: not any(map(is_alive, (gateway, child, *former))), why=lambda: "orphans")
    assert not shared_memory_of(gateway)
    assert not groups_of(gateway)


def test_only_the_supervisor_killed_takes_everything_with_it(app, tmp_path):
    with serving(app, tmp_path / "state", "--policy", "fifo") as world:
        tree = world.tree
        assert len(tree) >= 5
        kill(tree[0])
        world.process.wait(60)
        wait_for(lambda: not any(map(is_alive, tree)), why=lambda: "orphans")


def test_without_control_groups_too_nothing_of_a_killed_gateway_lives_on(app, tmp_path):
    with serving(app, tmp_path / "state", "--policy", "fifo", "--limits", "affinity") as world:
        child = world.call("parent").json["output"]
        former = [world.gateway, child, *world.instances]
        kill(world.gateway)
        assert world.call("slow", timeout_s=60).status == 200
        wait_for(lambda: not any(map(is_alive, former)), why=lambda: "orphans")


def test_after_the_death_of_everything_the_next_serve_ends_every_accepted_request_exactly_once(app, tmp_path):
    state, hold = tmp_path / "state", tmp_path / "hold"
    with serving(app, state, "--policy", "fifo") as first:
        keys = [f"k{n}" for n in range(60)]
        acknowledged = {}
        for number, key in enumerate(keys):
            acknowledged[first.send("note", key, key=key).json["id"]] = key
            if number == 30:
                hold.touch()  # the later ones are not done before the end
        wait_for(lambda: app.with_name("done.txt").exists())
        tree = first.tree
        gateway = first.gateway
        for pid in tree:
            kill(pid)
        wait_for(lambda: not any(map(is_alive, tree[1:])))
    done_before = len(executions(app))
    hold.unlink()
    with serving(app, state, "--policy", "fifo") as second:
        again = second.send("note", "k7", key="k7")
        assert (again.status, acknowledged[again.json["id"]]) == (200, "k7")  # it is known, not accepted anew
        for id in acknowledged:
            assert second.wait_for_end(id)["state"] == "completed"
        assert second.ask("GET", f"/v1/requests/{again.json['id']}/result").json["output"] == "k7"
        assert not shared_memory_of(gateway)
        assert not groups_of(gateway)
        assert second.stop() == 0
    rows = journal_rows(state)
    assert {id for id, *_ in rows} == set(acknowledged)
    assert len(rows) == len(keys)
    assert all(end is not None for _, _, _, end, _ in rows)
    ran = executions(app)
    assert set(ran) == set(keys)  # at least once each; what was under way was done again
    assert 0 < done_before < len(keys)


def test_an_instance_killed_while_a_restarted_gateway_starts_does_not_end_the_service(tmp_path):
    app = write_app(
        tmp_path / "app.py",
        """
        def load():
            time.sleep(1)

        @app.function(setup=load)
        def echo(_, x):
            return x

        app.workflow("echo", echo)
        """,
    )
    with serving(app, tmp_path / "state", "--policy", "fifo") as world:
        gateway = world.gateway
        kill(gateway)
        wait_for(lambda: world.gateway not in (None, gateway) and world.instances)
        for pid in world.instances:
            kill(pid)
        assert world.call("echo", 3, timeout_s=60).json["output"] == 3


def test_an_app_that_cannot_start_again_is_tried_until_it_can(tmp_path):
    app = write_app(
        tmp_path / "app.py",
        """
        def load():
            if Path(__file__).with_name("broken").exists():
                raise RuntimeError("the model is not there")

        @app.function(setup=load)
        def fragile(_, x):
            return x

        @app.function
        def echo(x):
            return x

        app.workflow("fragile", fragile)
        app.workflow("echo", echo)
        """,
    )
    broken = tmp_path / "broken"
    with serving(app, tmp_path / "state", "--policy", "fifo") as world:
        broken.touch()
        kill(world.gateway)
        assert world.call("echo", 1, timeout_s=60).status == 200  # what can be served is
        id = world.send("fragile", 2).json["id"]
        broken.unlink()
        assert world.wait_for_end(id, 60)["state"] in ("completed", "failed")
        wait_for(lambda: world.call("fragile", 2, timeout_s=60).status == 200, 60)
        assert "the model is not there" in world.err


def test_a_gateway_that_finds_itself_broken_makes_way_for_another(app, tmp_path):
    """A policy's fault is survived by falling back; one in the runtime itself, such as this, is not."""
    patch = tmp_path / "sitecustomize.py"
    patch.write_text(
        "import sys\n"
        "if '-m' in sys.orig_argv and 'fairlead.engine.live.process' in sys.orig_argv:\n"
        "    from fairlead.engine.live.runtime import Runtime\n"
        "    run = Runtime._run_batch\n"
        "    def break_once(self, effect):\n"
        "        if self.now > 0.5 and effect.function == 'parent':\n"
        "            raise RuntimeError('a bug of ours')\n"
        "        run(self, effect)\n"
        "    Runtime._run_batch = break_once\n"
    )
    patched = {"PYTHONPATH": str(tmp_path)}
    with serving(app, tmp_path / "state", "--policy", "fifo", has_faults=True, env=patched) as world:
        gateway = world.gateway
        id = world.send("note", "x").json["id"]
        time.sleep(0.5)
        with pytest.raises((OSError, HTTPException)):
            world.call("parent")
        wait_for(lambda: world.gateway not in (None, gateway))
        assert world.call("note", "y", timeout_s=60).status == 200
        assert world.wait_for_end(id)["state"] == "completed"
        assert "a bug of ours" in world.err
