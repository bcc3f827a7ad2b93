"""Requirements of apps: read without running the app, one environment per set of them, two versions side by side."""

import asyncio
import sys
import threading

import pytest
import uvloop
from agent_world import world
from runtimes import until
from serving import TOKEN, serving, wait_for
from tiny_wheels import wheel

from fairlead.app.describe import take_snapshot
from fairlead.app.environments import known_python, python_for, required
from fairlead.engine.live.contracts import AppCode
from fairlead.errors import ConfigError
from fairlead.testing.backends import Heard, Opened, write_app


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    return {version: wheel(folder, version) for version in (1, 2)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


APP = """
import time
from pathlib import Path
import tiny_part
from fairlead.app import App

app = App("shop", requirements=[{requirement!r}])

@app.function(run_limit_s="200s", start_limit_s="300s")
def version(wait):
    while wait and not Path(wait).exists():
        time.sleep(0.01)
    return tiny_part.VERSION

app.workflow("version", version)
"""


def test_requirements_are_read_without_running_the_app(tmp_path):
    file = tmp_path / "app.py"
    (tmp_path / "needs.txt").write_text("# both\none==1\n\n  two>=2  # pip reads this\n")
    assert required(file, "from fairlead.app import App\napp = App('a', requirements='needs.txt')\n1 / 0") == (
        "one==1",
        "two>=2  # pip reads this",
    )
    assert required(file, "import fairlead.app as f\napp = f.App('a', requirements=['one==1'])") == ("one==1",)
    assert required(file, "app = App('a')") == ()
    assert required(file, "this is no Python") == ()  # whoever runs it says so


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("wanted = ['one']\napp = App('a', requirements=wanted)", "line 2: requirements must be written out"),
        ("app = App('a', requirements='none.txt')", "none.txt cannot be read"),
        (f"app = App('a', requirements=['{'x' * 70_000}'])", "at most 64 KiB"),
    ],
    ids=["computed", "no-such-file", "too-many"],
)
def test_what_cannot_be_read_is_said(tmp_path, source, words):
    with pytest.raises(ConfigError, match=words):
        required(tmp_path / "app.py", source)


def test_an_environment_is_built_once(wheels, cache):
    folder = cache / "fairlead" / "environments"
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(python_for([wheels[1]], folder))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 1
    assert known_python([], folder) == sys.executable


def test_versions_with_different_packages_are_served_side_by_side(tmp_path, wheels, cache):
    app, go = tmp_path / "app.py", tmp_path / "go"
    app.write_text(APP.format(requirement=wheels[1]))
    answers: list[int] = []
    where = {"XDG_CACHE_HOME": str(cache)}
    with serving(app, tmp_path / "state", "--allow-deploy", token=TOKEN, env=where) as made:
        assert made.call("version", "").json["output"] == 1
        waiting = threading.Thread(target=lambda: answers.append(made.call("version", str(go)).json["output"]))
        waiting.start()
        wait_for(lambda: made.ask("GET", "/v1/apps/shop").json["status"]["functions"][0]["busy"] == 1)
        changed = made.ask("PUT", "/v1/apps/shop", {"source": APP.format(requirement=wheels[2])})
        assert changed.status == 200, changed.body
        assert made.call("version", "").json["output"] == 2
        assert answers == []  # the first version still works
        go.touch()
        waiting.join()
        assert answers == [1]
        refused = made.ask("PUT", "/v1/apps/shop", {"source": APP.format(requirement="tiny-part @ file:///no.whl")})
        assert refused.status == 422
        assert "no environment with tiny-part @ file:///no.whl can be made" in refused.message
        assert made.call("version", "").json["output"] == 2


def test_an_agent_builds_environments_beside_its_other_work(tmp_path, wheels, cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    async def test():
        async with world(tmp_path) as made:
            made.agent("a", 8)
            provider, heard = made.provider(), Heard()
            inventory = await provider.open(heard)
            plain = write_app(tmp_path)
            b = Opened(provider, provider.values, plain, heard, inventory)
            file = tmp_path / "needy.py"
            file.write_text(APP.format(requirement=wheels[2]))
            snapshot = await asyncio.to_thread(take_snapshot, file)
            assert snapshot.requirements == (wheels[2],)
            b.code = AppCode(str(file), "needy", snapshot.requirements)
            needy = await b.start("version")
            b.run(needy, 1, "version", "")
            (result,) = (await b.answer(needy, 1)).results
            assert (result.ok, b.values.read(result.value)) == (True, 2)
            b.code = AppCode(str(file), "needy", ("tiny-part @ file:///no.whl",))
            provider.start(b.spec("version", key="9.1"))
            b.code = plain
            await b.start("echo")  # which does not wait for it
            await until(lambda: "9.1" in heard.exits)
            assert "no environment with tiny-part @ file:///no.whl can be made" in heard.exits["9.1"][0].error

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
