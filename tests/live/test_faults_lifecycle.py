"""The life of `fairlead serve`: starting, draining, being told twice, replacing and removing apps under load."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import TOKEN, Serving, descendants, is_alive, kill, serving, wait_for, write_app

SLOW = """
@app.function(batch=4)
def slow(items):
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return items

app.workflow("slow", slow)
"""


def app_text(version: int, work_s: float = 0.02, name: str = "demo", more: str = "") -> str:
    return (
        f"import time\nfrom fairlead.app import App\napp = App({name!r})\n{more}\n"
        f"@app.function(batch=4)\ndef answer(items):\n    time.sleep({work_s})\n    return [{version}] * len(items)\n"
        "app.workflow('answer', answer)\n"
    )


class Load:
    """Users who call a workflow, one call after the other, until told to stop."""

    def __init__(self, world: Serving, workflow: str, users: int = 4) -> None:
        self.replies: list[tuple[int, object]] = []
        self._world, self._workflow = world, workflow
        self._stop = threading.Event()
        self._users = [threading.Thread(target=self._use) for _ in range(users)]

    def _use(self) -> None:
        while not self._stop.is_set():
            reply = self._world.call(self._workflow, 1)
            self.replies.append((reply.status, reply.json.get("output")))

    def __enter__(self) -> "Load":
        for user in self._users:
            user.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for user in self._users:
            user.join()


# --- starting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("setup=lambda: 1 / 0", "setup of broken raised ZeroDivisionError: division by zero (app.py, line 7)"),
        ("setup=lambda: time.sleep(60), start_limit_s=0.5", "did not start"),
        ("setup=lambda: os._exit(3)", "it exited with code 3"),
    ],
    ids=["raises", "hangs", "exits"],
)
def test_an_app_whose_setup_fails_ends_serve_with_the_reason(tmp_path, text, why):
    app = write_app(
        tmp_path / "app.py", f"\n@app.function({text})\ndef broken(_, x):\n    return x\napp.workflow('w', broken)\n"
    )
    served = Serving(app, tmp_path / "state")
    try:
        assert served.process.wait(300) == 1
        assert why in served.err
        assert "Traceback" not in served.own_err.partition("its last output")[0]
    finally:
        served.end()


@pytest.mark.parametrize("where", ["at its top", "in setup"])
def test_a_signal_during_a_start_that_hangs_ends_it_at_once(tmp_path, where):
    hang = "Path(__file__).with_name('begun').touch()\ntime.sleep(300)\n"
    top, setup = (hang, "pass") if where == "at its top" else ("", hang.replace("\n", "; "))
    function = "@app.function(setup=load)\ndef f(_, x):\n    return x\napp.workflow('w', f)\n"
    app = write_app(tmp_path / "app.py", f"\n{top}\ndef load():\n    {setup}\n\n{function}")
    served = Serving(app, tmp_path / "state")
    try:
        wait_for(lambda: (tmp_path / "begun").exists(), 60)
        below = descendants(served.process.pid)
        assert served.stop() == 0
        wait_for(lambda: not any(map(is_alive, below)), why=lambda: "something hangs on")
    finally:
        served.end()


# --- ending --------------------------------------------------------------------------------------------------------


def test_at_the_end_open_requests_are_answered_and_new_ones_refused(tmp_path):
    app, hold = write_app(tmp_path / "app.py", SLOW), tmp_path / "hold"
    with serving(app, tmp_path / "state", "--policy", "fifo") as world, ThreadPoolExecutor(8) as pool:
        connection = world.connect()
        assert world.ask("GET", "/readyz", connection=connection).status == 200
        hold.touch()
        open_calls = [pool.submit(world.call, "slow", 1) for _ in range(6)]
        accepted = world.send("slow", 1).json["id"]
        wait_for(lambda: world.workflow("slow")["open"] == 7)
        world.process.terminate()
        wait_for(lambda: world.ask("GET", "/readyz", connection=connection).status == 503)
        refused = world.call("slow", 0, connection=connection)
        assert refused.status == 503
        assert "retry-after" in refused.headers
        assert world.send("slow", 0, connection=connection).status == 503
        connection.close()
        hold.unlink()
        assert Counter(call.result().status for call in open_calls) == {200: 6}
        assert world.process.wait(300) == 0
    with serving(app, tmp_path / "state", "--policy", "fifo") as again:
        assert again.wait_for_end(accepted)["state"] == "completed"


def test_told_twice_it_gives_up_what_is_open_and_says_so_to_who_waits(tmp_path):
    app, hold = write_app(tmp_path / "app.py", SLOW), tmp_path / "hold"
    with serving(app, tmp_path / "state", "--policy", "fifo") as world, ThreadPoolExecutor(1) as pool:
        connection = world.connect()
        assert world.ask("GET", "/readyz", connection=connection).status == 200
        hold.touch()
        call = pool.submit(world.call, "slow", 1)
        accepted = world.send("slow", 1).json["id"]
        wait_for(lambda: world.workflow("slow")["open"] == 2)
        tree = world.tree
        world.process.send_signal(signal.SIGINT)
        wait_for(lambda: world.ask("GET", "/readyz", connection=connection).status == 503)
        connection.close()
        assert world.process.poll() is None  # it drains
        world.process.send_signal(signal.SIGINT)
        assert world.process.wait(20) == 0  # less than the 30 s for which it would drain
        reply = call.result()
        assert (reply.status, reply.json["error"]["reason"]) == (503, "the gateway is stopping")
        assert not any(map(is_alive, tree[1:]))
    hold.unlink()
    with serving(app, tmp_path / "state", "--policy", "fifo") as again:
        assert again.wait_for_end(accepted)["state"] == "completed"  # it was accepted, so it is done


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_is_one_request_to_end(tmp_path):
    app, hold = write_app(tmp_path / "app.py", SLOW), tmp_path / "hold"
    with serving(app, tmp_path / "state", "--policy", "fifo") as world, ThreadPoolExecutor(1) as pool:
        connection = world.connect()
        assert world.ask("GET", "/readyz", connection=connection).status == 200
        hold.touch()
        call = pool.submit(world.call, "slow", 1)
        wait_for(lambda: world.workflow("slow")["open"] == 1)
        os.killpg(world.process.pid, signal.SIGINT)
        wait_for(lambda: world.ask("GET", "/readyz", connection=connection).status == 503)
        connection.close()
        hold.unlink()
        assert call.result().status == 200
        assert world.process.wait(300) == 0


# --- apps under load -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apps")
    app = folder / "app.py"
    app.write_text(app_text(1))
    with serving(app, folder / "state", "--policy", "fifo", "--allow-deploy", token=TOKEN) as served:
        yield served


def put(world: Serving, text: str, name: str = "demo"):
    return world.ask("PUT", f"/v1/apps/{name}", {"source": text}, timeout_s=60)


def test_replacing_an_app_under_load_drops_no_request(world):
    first = world.call("answer").json["output"]
    with Load(world, "answer") as load:
        for before, version in ((first, 2), (2, 3)):
            wait_for(lambda output=before: (200, output) in load.replies)
            assert put(world, app_text(version)).status == 200
        wait_for(lambda: (200, 3) in load.replies)
        assert world.call("answer").json["output"] == 3
    assert set(load.replies) == {(200, first), (200, 2), (200, 3)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            app_text(9).replace("batch=4", "batch=4, setup=lambda: 1 / 0").replace("(items)", "(_, items)"),
            "ZeroDivision",
        ),
        (app_text(9) + "raise RuntimeError('no luck')\n", "no luck"),
        ("def broken(:", "SyntaxError"),
        (app_text(9, name="other"), "declares the app 'other'"),
    ],
    ids=["setup-raises", "import-raises", "no-python", "other-name"],
)
def test_a_replacement_that_cannot_start_leaves_the_former_one_serving(world, text, why):
    before = world.call("answer").json["output"]
    with Load(world, "answer") as load:
        reply = put(world, text)
    assert (reply.status, reply.json["error"]["code"]) == (422, "invalid_app")
    assert why in reply.message
    assert set(load.replies) == {(200, before)}


def test_scaling_up_and_down_under_load_drops_no_request(world):
    where = "/v1/apps/demo/functions/answer"
    with Load(world, "answer", users=6) as load:
        for number in (2, 1):  # one instance takes one of at least two CPUs
            assert world.ask("POST", f"{where}/scale", {"instances": number}).status == 200
            wait_for(
                lambda wanted=number: instances_of(world, where) == wanted, why=lambda: f"{instances_of(world, where)}"
            )
        assert world.ask("POST", f"{where}/scale", {"instances": None}).status == 200
    assert {status for status, _ in load.replies} == {200}


def instances_of(world: Serving, where: str) -> int:
    status = world.ask("GET", where).json["status"]
    return status["starting"] + status["idle"] + status["busy"]


def test_an_app_removed_while_it_works_finishes_what_it_has(world):
    assert put(world, app_text(5, 1.0, "brief"), "brief").status == 201
    instances = set(world.instances)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(world.call, "brief.answer", 1) for _ in range(4)]
        counts = ("open", "completed")  # on a slow machine the first may have ended before the last arrives
        wait_for(lambda: sum(world.workflow("answer", "brief")[count] for count in counts) == 4)
        assert world.ask("DELETE", "/v1/apps/brief").status == 200
        assert world.call("brief.answer", 1).status == 404
        assert {(call.result().status, call.result().json["output"]) for call in calls} == {(200, 5)}
    wait_for(lambda: len(world.instances) < len(instances))


def test_a_gateway_that_is_killed_comes_back_with_the_apps_that_were_served_last(world):
    assert put(world, app_text(7)).status == 200
    assert put(world, app_text(8, name="second"), "second").status == 201
    assert put(world, app_text(8, name="gone"), "gone").status == 201
    assert world.ask("DELETE", "/v1/apps/gone").status == 200
    kill(world.gateway)
    assert world.call("demo.answer", 1, timeout_s=60).json["output"] == 7
    assert [app["name"] for app in world.ask("GET", "/v1/apps").json["apps"]] == ["demo", "second"]
    assert world.ask("DELETE", "/v1/apps/second").status == 200


# --- the state folder --------------------------------------------------------------------------------------


ECHO = """
@app.function
def echo(x):
    if x == "raise":
        raise ValueError("as asked")
    return x

app.workflow("echo", echo)
"""


def test_a_second_server_on_the_same_state_is_refused_and_touches_nothing(tmp_path):
    app = write_app(tmp_path / "app.py", ECHO)
    with serving(app, tmp_path / "state") as world:
        before = (tmp_path / "state" / "gateway.json").read_bytes()
        command = [
            sys.executable,
            "-m",
            "fairlead",
            "serve",
            str(app),
            "--port",
            "0",
            "--state",
            str(tmp_path / "state"),
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert second.returncode == 1
        assert "is in use by another gateway" in second.stderr
        assert "Serving" not in second.stdout
        assert (tmp_path / "state" / "gateway.json").read_bytes() == before
        assert [run.name for run in (tmp_path / "state" / "runs").iterdir()] == ["1"]
        assert world.call("echo", 1).status == 200


def test_no_id_comes_twice_and_refusals_and_failures_have_one(tmp_path):
    app = write_app(tmp_path / "app.py", ECHO)
    ids = []
    for _ in range(2):
        with serving(app, tmp_path / "state") as world:
            ids.append(world.call("echo", 1).json["id"])
            ids.append(world.call("echo", "raise").json["error"]["id"])
    assert ids == ["demo-1-0", "demo-1-1", "demo-2-0", "demo-2-1"]
