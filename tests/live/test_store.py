"""Values: what passes, and what large ones leave in shared memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.live.store import INLINE_BYTES, Store, names
from fairlead.engine.live.values import Ending, decode, encode, to_json

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


def test_a_name_cannot_lead_out_of_the_store(store):
    with pytest.raises(ValueError, match="not the name of a stored value"):
        store.read("../../etc/passwd")


def test_what_a_dead_process_never_told_of_is_removed(store):
    told, untold = store.put(encode(b"a" * INLINE_BYTES)), store.put(encode(b"b" * INLINE_BYTES))
    store.hold([told])
    store.forget(os.getpid())
    assert [path.name for path in store.folder.iterdir()] == list(names(told))
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
