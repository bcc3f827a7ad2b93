"""The networks as ONNX give what the weights give in PyTorch; files of tensors are read without running them."""

import pickle
from collections import OrderedDict
from subprocess import Popen

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from fairlead.video.graphs import names_text
from fairlead.video.networks import network, object_names
from fairlead.video.pickles import _array, _Pending, read_tensors

# --- files of tensors


def test_tensors_are_read_as_pytorch_reads_them(tmp_path):
    path = tmp_path / "tensors.pth"
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = OrderedDict(a=base, turned=base.t()[1:3], count=torch.tensor(7), one=torch.ones(3))
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    found = read_tensors(path.read_bytes())
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].shape == tuple(tensor.shape)
        np.testing.assert_array_equal(found[name], tensor.numpy())


class Runs:
    """Would start a program when it is unpickled."""

    def __reduce__(self):
        return Popen, (["true"],)


def test_a_file_that_would_run_something_is_refused():
    parts = [0x1950A86A20F9469CFC6C, 1001, {}, {"a": Runs()}]
    with pytest.raises(ValueError, match=r"asks for \w+\.Popen"):
        read_tensors(b"".join(pickle.dumps(part, protocol=2) for part in parts))


def test_a_tensor_that_reaches_beyond_its_numbers_is_refused():
    for shape, strides in (((2, 2), (-3, 4)), ((3,), (-1,)), ((5,), (1,)), ((2, 3), (2, 1))):
        with pytest.raises(ValueError, match="outside of its storage"):
            _array(_Pending("0", 0, shape, strides), np.arange(4.0))
    np.testing.assert_array_equal(_array(_Pending("0", 0, (2, 2), (1, 2)), np.arange(4.0)), [[0, 2], [1, 3]])


@pytest.mark.parametrize("data", [b"", b"no pickle", pickle.dumps(1, 2) * 5], ids=["empty", "text", "other"])
def test_what_is_no_file_of_tensors_is_refused(data):
    with pytest.raises(ValueError, match=r"file of tensors|begin"):
        read_tensors(data)


# --- networks

STAGES = ((1, 16, 3, 1, 1), (2, 24, 3, 2, 6), (2, 40, 5, 2, 6), (3, 80, 3, 2, 6), (3, 112, 5, 1, 6), (4, 192, 5, 2, 6))


def same_conv(x, weight, stride=1, groups=1):
    """A convolution that pads as TensorFlow does."""
    pads = []
    for size, kernel in zip(x.shape[:1:-1], weight.shape[:1:-1], strict=True):
        room = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads += [room // 2, room - room // 2]
    return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)


def initializers(path):
    """The numbers of an ONNX file in the order in which they were put there."""
    import onnx  # noqa: PLC0415 - only this test reads such a file
    from onnx import numpy_helper  # noqa: PLC0415

    return [torch.from_numpy(numpy_helper.to_array(each).copy()) for each in onnx.load(path).graph.initializer]


@pytest.mark.slow
def test_objects_are_as_in_pytorch(weights):
    numbers = iter(initializers(weights / "objects.onnx"))

    def norm(x):
        scale, shift, mean, variance = (next(numbers) for _ in range(4))
        return F.batch_norm(x, mean, variance, scale, shift, eps=1e-3)

    def relu6(x):
        assert [next(numbers).item(), next(numbers).item()] == [0, 6]
        return F.relu6(x)

    batch = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32))
    with torch.no_grad():
        x = relu6(norm(same_conv(batch, next(numbers), stride=2)))
        for blocks, out, _kernel, first_stride, wider in (*STAGES, (1, 320, 3, 1, 6)):
            for number in range(blocks):
                before, stride = x, first_stride if number == 0 else 1
                if wider > 1:
                    x = relu6(norm(same_conv(x, next(numbers))))
                x = relu6(norm(same_conv(x, next(numbers), stride, groups=x.shape[1])))
                x = norm(same_conv(x, next(numbers)))
                assert x.shape[1] == out
                x = x + before if x.shape == before.shape else x
        x = relu6(norm(same_conv(x, next(numbers))))
        expected = F.linear(x.mean((2, 3)), next(numbers), next(numbers))
    assert next(numbers, None) is None
    found = network("objects")(batch.numpy())
    assert np.abs(found - expected.numpy()).max() < 1e-3


@pytest.mark.usefixtures("weights")
def test_emotions_are_shares_of_one():
    batch = np.random.default_rng(0).uniform(-1, 1, size=(1, 1, 64, 64)).astype(np.float32)
    shares = network("emotions")(batch)
    assert shares.shape == (1, 7)
    assert shares.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.usefixtures("weights")
def test_classes_have_the_names_that_everybody_knows_them_by():
    names = object_names()
    assert len(names) == 1000
    assert (names[0], names[285], names[967], names[999]) == ("tench", "Egyptian cat", "espresso", "toilet tissue")


def test_a_class_is_called_by_its_first_name():
    assert names_text(b"n2\nn1\n", b"n1\tcat, true cat\nn2\tdog\n") == b"dog\ncat\n"
