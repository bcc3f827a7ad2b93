"""What a gateway leaves for the next one."""

import json

import pytest

from fairlead.app.snapshot import read_snapshot
from fairlead.engine.live.known import KnownApp, KnownApps

APP = (
    "from fairlead.app import App\napp = App('shop')\n@app.function()\ndef f(x):\n    return x\napp.workflow('f', f)\n"
)


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def test_apps_are_found_again_from_their_snapshots_and_others_are_deleted(tmp_path, app):
    known = KnownApps(tmp_path / "state", print)
    old = known.take(app)
    app.write_text(APP + "# edited\n")
    new = known.take(app)
    known.write(7, {"shop": KnownApp(old.file.name, str(app))}, in_use=[])
    assert not new.file.exists()
    generation, apps = KnownApps(tmp_path / "state", print).read()
    assert (generation, apps) == (7, {"shop": KnownApp(old.file.name, str(app))})
    assert known.find(apps["shop"]).snapshot.files == {"app.py": APP}


def test_a_profile_is_the_one_that_lay_beside_the_app_when_it_was_deployed(tmp_path, app):
    (tmp_path / "app.profile.json").write_text('{"first": 1}')
    known = KnownApps(tmp_path / "state", print)
    source = known.take(app)
    (tmp_path / "app.profile.json").write_text("broken")
    assert known.take(source.file).snapshot.profile == '{"first": 1}'


def test_a_snapshot_that_cannot_be_read_gives_way_to_the_file(tmp_path, app):
    said = []
    known = KnownApps(tmp_path / "state", said.append)
    source = known.take(app)
    source.file.write_text("{")
    found = known.find(KnownApp(source.file.name, str(app)))
    assert read_snapshot(found.file) == found.snapshot
    assert "is not a snapshot" in said[0]


def test_what_an_earlier_version_left_is_read(tmp_path, app):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "apps.json").write_text(json.dumps({"shop": str(app)}))
    known = KnownApps(tmp_path / "state", print)
    assert known.read() == (0, {"shop": KnownApp("", str(app))})
    assert known.find(KnownApp("", str(app))).snapshot.files == {"app.py": APP}


@pytest.mark.parametrize("text", [b"", b"[]", b'{"shop": 1}', b'{"generation": "x", "apps": {}}', b'{"shop": "\xff"}'])
def test_what_cannot_be_read_is_said_and_is_not_known(tmp_path, text):
    said = []
    (tmp_path / "apps.json").write_bytes(text)
    assert KnownApps(tmp_path, said.append).read() == (0, None)
    assert "what was served before is not known" in said[0]
