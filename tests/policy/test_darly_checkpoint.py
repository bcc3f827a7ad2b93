"""Agents of Darly in files: what was written is read, and what is wrong is said."""

import msgspec
import numpy as np
import pytest
from darly_agents import GROUPS, NODES, stubborn

from fairlead.errors import ConfigError
from fairlead.policy.darly.checkpoint import Checkpoint, check_fits, read_checkpoint, write_checkpoint
from fairlead.policy.darly.network import arrays_of, forward, layers_of
from fairlead.policy.kit.weights import Form, write_weights


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.safetensors"


def with_arrays(arrays) -> Checkpoint:
    return Checkpoint(description=stubborn().description, arrays=arrays)


def unchecked(path, arrays, **settings) -> None:
    description = msgspec.structs.replace(stubborn().description, **settings)
    write_weights(path, Form(name="fairlead-darly", version=1, otherwise=""), arrays, description)


def test_what_was_written_is_read(path):
    agent = stubborn("custom", 3, seed=7, steps=500, is_as_published=True, scenario="darly-16")
    write_checkpoint(agent, path)
    found = read_checkpoint(path)
    assert found.description == agent.description
    assert found.description.actions == 12
    assert forward(found.layers, np.ones(35, np.float32)).tolist() == [0, 0, 0, 1] + [0] * 8


def test_the_network_has_relu_between_its_layers_and_none_behind():
    one = (np.array([[1.0, -1.0]], np.float32), np.array([0.0, 0.5], np.float32))
    two = (np.array([[2.0], [-4.0]], np.float32), np.array([1.0], np.float32))
    layers = layers_of(arrays_of([one, two]))
    # 3: (3, -2.5) -> (3, 0) -> 7. -1: (-1, 1.5) -> (0, 1.5) -> -5.
    assert forward(layers, np.array([[3.0], [-1.0]], np.float32)).ravel().tolist() == [7.0, -5.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {**a, "q.0.weight": np.zeros((34, 2), np.float32)}, r"q.0.weight is float32 \(34, 2\) instead"),
        (lambda a: {**a, "q.1.bias": np.zeros(14, np.float32)}, r"q.1.bias is float32 \(14,\) instead"),
        (lambda a: {**a, "q.1.bias": np.zeros(15)}, "float64"),
        (lambda a: {name: array for name, array in a.items() if name != "q.1.bias"}, "q.1.bias is missing"),
        (lambda a: {**a, "q.2.weight": np.zeros((15, 1), np.float32)}, "q.2.weight is not part"),
        (lambda a: {**a, "q.1.bias": np.full(15, np.nan, np.float32)}, "not finite, in q.1.bias"),
    ],
    ids=["inputs", "outputs", "type", "missing", "extra", "nan"],
)
def test_arrays_that_do_not_fit_are_neither_written_nor_read(path, change, message):
    arrays = change(dict(stubborn().arrays))
    with pytest.raises(ConfigError, match=message):
        write_checkpoint(with_arrays(arrays), path)
    assert not path.exists()
    unchecked(path, arrays)
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observation": 28}, "sees 28 numbers, and 4 nodes with 3 groups give 35"),
        ({"groups": ()}, "no group"),
        ({"max_replicas": 0}, "no replicas"),
        ({"qos_scale_s": 0.0}, "not positive"),
        ({"scheduler": "sorcerer"}, "description that cannot be read"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(path, settings, message):
    unchecked(path, stubborn().arrays, **settings)
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(path)


def test_a_file_that_is_absent_cut_off_damaged_or_of_others_is_refused(path):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        read_checkpoint(path)
    write_checkpoint(stubborn(), path)
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(ConfigError, match="cut off"):
        read_checkpoint(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConfigError, match="damaged"):
        read_checkpoint(path)
    write_weights(path, Form(name="other", version=1, otherwise=""), stubborn().arrays, stubborn().description)
    with pytest.raises(ConfigError, match="no agent of darly; train one with: fairlead train darly"):
        read_checkpoint(path)
    write_weights(path, Form(name="fairlead-darly", version=9, otherwise=""), {}, stubborn().description)
    with pytest.raises(ConfigError, match="has version '9'"):
        read_checkpoint(path)


def test_an_agent_of_another_scheduler_or_cluster_is_refused_with_every_reason():
    description = stubborn("oracle").description
    check_fits("file", description, "oracle", GROUPS, NODES)
    with pytest.raises(ConfigError) as caught:
        check_fits("file", description, "fullmap", ("a", "b", "models"), NODES[:3])
    text = str(caught.value)
    assert "3 faults" in text
    assert "trained as darly-oracle, not fullmap" in text
    assert "framer, detector, models; here are a, b, models" in text
    assert "w01, w02, w03, w04; here are w01, w02, w03" in text
