"""Values: what passes, and what large ones leave in shared memory."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_disks import fill, mounted

from fairlead.engine.live.json_steps import json_in_steps
from fairlead.engine.live.store import INLINE_BYTES, Store, names
from fairlead.engine.live.values import (
    Ending,
    InputError,
    array_head,
    check_items,
    decode,
    encode,
    list_length,
    reference,
    split,
    to_json,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture
def store():
    made = Store.make()
    yield made
    made.close()


@given(JSON)
def test_plain_values_come_back_as_they_were(value):
    assert decode(encode(value)) == value


def test_arrays_come_back_with_shape_and_kind():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    back = decode(encode({"a": array, "n": np.int64(3)}))
    assert back["n"] == 3
    np.testing.assert_array_equal(back["a"], array)
    assert back["a"].dtype == np.float32
    assert to_json({"a": array[:1]}) == b'{"a":[[0.0,1.0,2.0,3.0]]}'


def nested(depth):
    return [nested(depth - 1)] if depth else []


LONG = [*range(10_000)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        {},
        LONG,
        [LONG, {"a": LONG, "b": {"c": []}}, "x", None, [[[[[LONG]]]]], nested(400)],
        {"grid": np.arange(10_000.0).reshape(10, 10, 100), "line": np.arange(10_000), "none": np.zeros((0, 3))},
        {"raw": b"xyz", 1: 2, "deep": {'e"r': [{"x": n} for n in range(5000)]}},
        np.float32(0.5),
    ],
)
def test_json_in_steps_is_the_same_json(value):
    assert json_in_steps(value) == to_json(value)


@given(JSON)
def test_json_in_steps_is_the_same_json_of_any_value(value):
    assert json_in_steps(value) == to_json(value)


def test_what_cannot_be_passed_on_says_so():
    with pytest.raises(TypeError, match="a value of type object cannot be passed on"):
        encode(object())


def test_small_values_stay_and_large_ones_go_to_shared_memory(store):
    small, large = encode("x"), encode(b"x" * INLINE_BYTES)
    assert store.put(small) == small
    name = store.put(large)
    assert isinstance(name, str)
    assert store.read([name, small]) == [b"x" * INLINE_BYTES, "x"]
    store.drop([small, [name]])
    assert list(store.folder.iterdir()) == []


@pytest.fixture
def small(tmp_path):
    """A store whose shared memory has 256 KiB, and whose disk has 1 MiB."""
    with mounted(tmp_path / "memory", "256k") as memory, mounted(tmp_path / "disk", "1m") as disk:
        made = Store.make(disk, memory)
        yield made
        made.close()
        assert not list(memory.iterdir())
        assert not list(disk.iterdir())


def kept(store):
    return sorted(path.name for folder in (store.folder, store.spill) for path in folder.iterdir())


def test_what_does_not_fit_into_shared_memory_goes_to_disk_and_then_stays_in_line(small):
    large = encode(b"x" * 200_000)
    values = [small.put(large) for _ in range(8)]
    pid = os.getpid()
    expected = [f"{pid}-0", *(f"disk-{pid}-{n}" for n in range(1, 6))]  # 1 in 256 KiB, 5 in 1 MiB
    assert values == [*(f"{name}:200005" for name in expected), large, large]
    assert kept(small) == sorted(expected)  # nothing half-written is left
    assert small.read(values) == [b"x" * 200_000] * 8
    assert small.encoded(values) == encode(small.read(values))
    assert small.size_bytes(values) == len(small.encoded(values))
    small.drop(values)
    assert kept(small) == []
    assert isinstance(small.put(large), str)


def test_what_a_dead_process_spilled_and_never_told_of_is_removed(small):
    told, untold = (small.put(encode(b"x" * 200_000)) for _ in range(2))
    assert untold.startswith("disk-")
    small.hold(told)
    small.forget(os.getpid())
    assert kept(small) == [told.partition(":")[0]]


def test_a_store_opens_on_a_full_disk_and_full_shared_memory(tmp_path):
    with mounted(tmp_path / "memory", "64k") as memory, mounted(tmp_path / "disk", "64k") as disk:
        fill(memory / "filler")
        fill(disk / "filler")
        made = Store.make(disk, memory)
        large = encode(b"x" * 100_000)
        assert made.put(large) == large
        made.close()


def test_a_name_cannot_lead_out_of_the_store(store):
    with pytest.raises(ValueError, match="not the name of a stored value"):
        store.read("../../etc/passwd:100")


def test_what_a_dead_process_never_told_of_is_removed(store):
    told, untold = store.put(encode(b"a" * INLINE_BYTES)), store.put(encode(b"b" * INLINE_BYTES))
    store.hold([told])
    store.forget(os.getpid())
    assert [path.name for path in store.folder.iterdir()] == [reference(name).name for name in names(told)]
    assert untold != told


def test_the_store_of_a_dead_gateway_is_swept_by_the_next():
    code = (
        "from fairlead.engine.live.store import Store; import os; print(Store.make().folder, flush=True); os._exit(9)"
    )
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert "fairlead-" in left  # another gateway of this machine may have swept it by now
    made = Store.make()
    made.close()
    assert not os.path.exists(left)


def test_the_store_of_a_live_gateway_is_kept_by_one_in_another_pid_namespace(store):
    """Seen from there, this process does not exist."""
    unshare = [shutil.which("unshare") or "unshare", "--pid", "--fork"]
    try:
        allowed = subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("a new PID namespace is not allowed here")
    value = store.put(encode(b"x" * INLINE_BYTES))
    code = "from fairlead.engine.live.store import Store; Store.make().close()"
    subprocess.run([*unshare, sys.executable, "-c", code], check=True)
    assert store.read(value) == b"x" * INLINE_BYTES


def test_only_folders_of_stores_are_swept(tmp_path):
    left, *others = (tmp_path / name for name in ("fairlead-1-abcd_123", "fairlead-demo-abcd_123", "fairlead-1-report"))
    for folder in (left, *others):
        folder.mkdir()
    Store.make(tmp_path, tmp_path).close()
    assert sorted(tmp_path.iterdir()) == sorted(others)


@pytest.mark.parametrize("name", ["disk-1", "disk-../1", "1-0/../../x", "disk", ""])
def test_only_names_of_values_are_looked_up(store, name):
    with pytest.raises((ValueError, FileNotFoundError)):
        store.read(name)


@pytest.mark.parametrize(
    ("value", "length"), [([], 0), ([1] * 15, 15), ([1] * 16, 16), ([1] * 70_000, 70_000), ("text", None), ({}, None)]
)
def test_the_length_of_an_encoded_list_is_read_from_its_head(value, length):
    data = encode(value)
    assert list_length(data) == length
    if length is not None:
        assert data.startswith(array_head(length))
        assert [decode(item) for item in split(data)] == value


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, "int"),
        (-5, "int"),
        (2.5, "float"),
        ("x", "str"),
        (None, "None"),
        ({"a": 1}, "dict"),
        (True, "bool"),
        (b"x", "bytes"),
        (np.ones(3), "array"),
    ],
)
def test_an_input_that_is_no_list_is_named_by_its_type(value, found):
    with pytest.raises(InputError, match=f"must be a list; got {found}") as refused:
        check_items(encode(value), 10)
    assert refused.value.code == "not_a_list"


@pytest.mark.parametrize(
    ("outcome", "end", "wait_s", "cold_s", "cause"),
    [
        ("completed", 1.0, 0.0, 0.0, None),
        ("completed", 1.5, 0.6, 0.0, "queue"),
        ("completed", 1.5, 0.0, 0.7, "cold"),
        ("completed", 1.5, 0.1, 0.1, "service"),
        ("rejected", 0.1, 0.0, 0.0, "rejected"),
    ],
)
def test_a_missed_deadline_has_a_cause(outcome, end, wait_s, cold_s, cause):
    ending = Ending(
        request=1, workflow="w", outcome=outcome, arrival=0.0, end=end, deadline=1.0, wait_s=wait_s, cold_s=cold_s
    )
    assert ending.cause == cause
