"""Files of trained agents: what is read is what was written, and whatever is wrong with one is said."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from simppo_worlds import NAMES, agents, saved, world

from fairlead.engine import simulate
from fairlead.errors import ConfigError
from fairlead.policy.kit import weights as files
from fairlead.policy.simppo.agents import agent_numbers
from fairlead.policy.simppo.checkpoint import read_checkpoint, write_checkpoint
from fairlead.policy.simppo.policy import Simppo


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.safetensors"


def refusal(path):
    """What is said of a file; it names the file."""
    with pytest.raises(ConfigError) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def rewritten(path, **header):
    """The file with other words in its header."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    words = json.loads(content[8 : 8 + length])
    words["__metadata__"] |= header
    text = json.dumps(words).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_is_read_is_what_was_written(path, is_shared):
    trained = agents(is_shared=is_shared)
    write_checkpoint(trained, path)
    found = read_checkpoint(path)
    assert found.description == trained.description
    assert found.arrays.keys() == trained.arrays.keys()
    assert all((found.arrays[name] == array).all() for name, array in trained.arrays.items())
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no partial file is left


def test_a_file_that_is_not_there_is_said_so(path):
    assert "cannot be read: No such file" in refusal(path)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_off_is_refused(tmp_path_factory, share):
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    write_checkpoint(agents(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "is not a safetensors file, or is cut off" in refusal(path)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_never_read_as_other_numbers(tmp_path_factory, share, bit):
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    write_checkpoint(agents(), path)
    trained, content = read_checkpoint(path), bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1 << bit
    path.write_bytes(content)
    try:
        found = read_checkpoint(path)
    except ConfigError:
        return
    assert all((found.arrays[name] == array).all() for name, array in trained.arrays.items())


def test_a_flipped_bit_among_the_numbers_is_called_damage(path):
    write_checkpoint(agents(), path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "is damaged: its numbers are not those that were written" in refusal(path)


def test_any_other_safetensors_file_is_no_checkpoint(path):
    save_file({"weight": np.zeros(3, np.float32)}, path)
    assert "holds no agents of simppo; train some with: fairlead train simppo" in refusal(path)


def test_another_version_is_refused(path):
    write_checkpoint(agents(), path)
    rewritten(path, version="2")
    assert "has version '2' of the format; this Fairlead reads 1" in refusal(path)


def test_a_file_that_is_too_large_is_not_even_read(path, monkeypatch):
    write_checkpoint(agents(), path)
    monkeypatch.setattr(files, "LARGEST_BYTES", 1024**2)
    with path.open("r+b") as file:
        file.truncate(1024**2 + 1)
    assert "is larger than 1 MiB" in refusal(path)


def test_a_description_that_is_none_is_refused(path):
    write_checkpoint(agents(), path)
    rewritten(path, description='{"own": "seven"}')
    assert "has a description that cannot be read" in refusal(path)
    rewritten(path, description="nonsense")
    assert "has a description that cannot be read" in refusal(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"others": "none"}, "actor.0.weight is float32 (4, 11, 8), and 4 agents that see 7 numbers need (4, 7, ...)"),
        ({"is_shared": True}, "1 agents that see 11 numbers need (1, 11, ...)"),
        ({"actions": 5}, "the actor gives 7 numbers instead of 5"),
        ({"agents": ()}, "describes no agent"),
        ({"slots": 3}, "slots must be positive with 'concat' and 0 without; got 3"),
    ],
    ids=["others", "shared", "actions", "nobody", "slots"],
)
def test_a_description_of_other_networks_is_refused(path, changes, message):
    trained = agents()
    description = msgspec.structs.replace(trained.description, **changes)
    write_checkpoint(msgspec.structs.replace(trained, description=description), path)
    assert message in refusal(path)


def test_one_agent_less_than_described_is_refused(path):
    trained = agents()
    arrays = {name: array[:3] for name, array in trained.arrays.items()}
    write_checkpoint(msgspec.structs.replace(trained, arrays=arrays), path)
    assert "actor.0.weight is float32 (3, 11, 8)" in refusal(path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("critic.1.bias", np.zeros((4, 9), np.float32), "critic.1.bias is (4, 9)"),
        ("actor.1.weight", np.zeros((4, 8, 8)), "actor.1.weight is float64 (4, 8, 8)"),
        ("critic.2.weight", np.full((4, 8, 1), np.nan, np.float32), "not finite, in critic.2.weight"),
        ("actor.2.bias", np.full((4, 7), np.inf, np.float32), "not finite, in actor.2.bias"),
        ("returns.mean", np.zeros(3, np.float32), "returns.mean is (3,)"),
    ],
    ids=["bias", "type", "nan", "infinite", "returns"],
)
def test_arrays_that_do_not_fit_are_refused(path, name, array, message):
    trained = agents()
    write_checkpoint(msgspec.structs.replace(trained, arrays={**trained.arrays, name: array}), path)
    assert message in refusal(path)


@pytest.mark.parametrize("gone", ["actor.0.weight", "critic.0.weight", "actor.1.bias", "critic.2.weight"])
def test_a_missing_array_is_refused(path, gone):
    trained = agents()
    arrays = {name: array for name, array in trained.arrays.items() if name != gone}
    write_checkpoint(msgspec.structs.replace(trained, arrays=arrays), path)
    assert refusal(path)


def test_functions_it_does_not_know_are_served_by_the_most_alike(tmp_path):
    trained = agents().description.agents
    known = tuple(msgspec.structs.replace(a, time_s=t) for a, t in zip(trained, (0.1, 1.0, 10.0, 100.0), strict=True))
    assert agent_numbers(known, {"x": 9.0, "b": 50.0, "y": 0.001}).tolist() == [2, 1, 0]
    where = world(("a", "stranger"), duration_s=60)
    policy = Simppo(checkpoint=saved(tmp_path))
    recording = simulate(where, "fifo", scaler=policy)
    assert recording.refusals == ()
    assert set(recording.requests["outcome"]) == {"completed"}
    assert set(policy.notes()) == {"a", "stranger"}
    assert "stranger" not in NAMES
