"""Running an app file: which app, what it may import, and errors that point into the user's own file."""

import sys
from pathlib import Path

import pytest

from fairlead.app import load_app
from fairlead.app.load import split_address
from fairlead.app.scenario import place_of_profile
from fairlead.errors import ConfigError

APP = """
from fairlead import App

app = App("shop")


@app.function
def double(x):
    return 2 * x


app.workflow("w", double)
"""


@pytest.fixture(autouse=True)
def _same_path():
    """What loading does to this process is undone."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("fairlead_app_", "neighbour")):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write(text, name="app.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_an_app_is_a_file(write):
    app = load_app(write(APP))
    assert app.name == "shop"
    assert app.workflows["w"](4) == 8


def test_a_folder_stands_for_the_app_file_in_it(write, tmp_path):
    file = write(APP + "\nother = App('other')\n")
    assert split_address(tmp_path) == (file, None)
    assert split_address(f"{tmp_path}:other") == (file, "other")
    assert load_app(f"{tmp_path}:other").name == "other"
    assert place_of_profile(tmp_path) == tmp_path / "app.profile.json"


def test_a_folder_without_an_app_names_those_below_it(write, tmp_path):
    (tmp_path / "shop").mkdir()
    write(APP, "shop/app.py")
    with pytest.raises(ConfigError, match=rf"is a folder without an app.py. Name one of these: {tmp_path}/shop\."):
        load_app(tmp_path)
    assert split_address("no/such/folder:app") == (Path("no/such/folder:app"), None)


def test_a_file_runs_anew_each_time_also_if_it_is_replaced_within_a_second(write):
    first = load_app(write(APP))
    second = load_app(write(APP.replace("2 * x", "3 * x")))  # as long as before, and as new
    assert (first.functions["double"](5), second.functions["double"](5)) == (10, 15)


def test_what_is_under_main_does_not_run(write):
    assert load_app(write(APP + "\nif __name__ == '__main__':\n    raise SystemExit(3)\n")).name == "shop"


def test_a_file_imports_its_neighbours_and_declares_dataclasses(write):
    write("FACTOR = 7\n", "neighbour_of_an_app.py")
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from neighbour_of_an_app import FACTOR\n\n@dataclass\nclass Point:\n    x: int = FACTOR\n" + APP
    )
    assert load_app(write(text.replace("2 * x", "Point().x * x"))).functions["double"](2) == 14


def test_one_of_several_apps_is_picked_by_name(write):
    path = write(APP + "\nother = App('other')\nother.workflow('v', other.function(name='f')(str))\n")
    assert load_app(f"{path}:other").name == "other"
    assert load_app(path, "app").name == "shop"
    with pytest.raises(ConfigError, match=r"there are several apps in it: app, other. Name one, such as .*app\.py:app"):
        load_app(path)
    with pytest.raises(ConfigError, match=r"there is no app 'third' in it\. Those there are: app, other"):
        load_app(f"{path}:third")


def test_one_app_under_two_names_is_one(write):
    assert load_app(write(APP + "\nagain = app\n")).name == "shop"


def test_a_file_without_an_app(write):
    with pytest.raises(ConfigError, match="there is no app in it; declare one"):
        load_app(write("x = 1\n"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.py: cannot be read: No such file or directory"):
        load_app(tmp_path / "none.py")
    with pytest.raises(ConfigError, match=r"is a folder without an app.py. Name the app file\."):
        load_app(tmp_path)


def test_a_wrong_declaration_is_reported_at_its_line_without_our_code(write):
    path = write(APP + "\n@app.function(batch=0)\ndef wrong(x):\n    return x\n")
    with pytest.raises(ConfigError) as caught:
        load_app(path)
    assert str(caught.value) == (
        f"{path}: line 14: batch must be a whole number of at least 1, or several such as (1, 2, 4, 8); got 0."
    )


def test_a_file_that_raises_shows_the_users_own_way_there(write):
    path = write("def load():\n    return {}['model']\n\n\nload()\n" + APP)
    with pytest.raises(ConfigError) as caught:
        load_app(path)
    (fault,) = caught.value.faults
    assert fault.path == "line 2"
    assert fault.message.startswith("KeyError: 'model'\n")
    assert "load()" in fault.message
    assert "load.py" not in fault.message  # our own file


def test_a_neighbour_that_raises_is_named(write):
    write("1 / 0\n", "neighbour_that_raises.py")
    with pytest.raises(ConfigError) as caught:
        load_app(write("import neighbour_that_raises\n"))
    (fault,) = caught.value.faults
    assert fault.path == "line 1"
    assert "ZeroDivisionError: division by zero" in fault.message
    assert "neighbour_that_raises.py" in fault.message


def test_a_syntax_error_has_its_line(write):
    with pytest.raises(ConfigError, match=r"app\.py: line 2: SyntaxError: "):
        load_app(write("x = 1\ndef :\n"))
    with pytest.raises(ConfigError, match="null bytes"):
        load_app(write("x = 1\0\n"))


def test_a_file_that_ends_the_process_is_stopped(write):
    with pytest.raises(ConfigError, match="line 2: it ends the process"):
        load_app(write("import sys\nsys.exit(3)\n"))
