"""Values and compiled code on disk: whole or absent, and apart for each tenant."""

import numpy as np
import pytest

from fairlead.kaas import ValueMissingError, Values
from fairlead.kaas.devices.programs import ProgramCache


def test_value_is_read_back_in_parts(tmp_path):
    values = Values(tmp_path)
    values.put("t", "k", np.arange(4, dtype=np.int32))
    assert values.read("t", "k", 4, 8).view(np.int32).tolist() == [1, 2]


def test_key_has_one_value_for_ever(tmp_path):
    values = Values(tmp_path)
    values.put("t", "k", b"abcd")
    values.put("t", "k", b"abcd")
    with pytest.raises(ValueError, match="has another value already"):
        values.put("t", "k", b"abce")
    values.remove("t", "k")
    values.put("t", "k", b"abce")


@pytest.mark.parametrize(
    ("tenant", "key"), [("u", "k"), ("tk", ""), ("t", "../k")], ids=["other-tenant", "shifted", "path"]
)
def test_tenant_sees_its_own_values_only(tmp_path, tenant, key):
    values = Values(tmp_path / "values")
    values.put("t", "k", b"abcd")
    (tmp_path / "k").write_bytes(b"abcd")
    with pytest.raises(ValueMissingError, match="has no value"):
        values.read(tenant, key, 0, 4)


def test_value_that_is_too_short_is_missing(tmp_path):
    values = Values(tmp_path)
    values.put("t", "k", b"abcd")
    with pytest.raises(ValueMissingError, match="has 4 bytes; bytes 4 to 8 were asked for"):
        values.read("t", "k", 4, 4)


def test_code_is_found_again_unless_it_was_altered(tmp_path):
    cache = ProgramCache(tmp_path)
    key = cache.key("opencl", "source", "device")
    assert cache.get(key) is None
    cache.put(key, b"code")
    assert ProgramCache(tmp_path).get(key) == b"code"
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    assert cache.get(key) is None


def test_code_depends_on_each_of_its_texts(tmp_path):
    cache = ProgramCache(tmp_path)
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("ab", "c", "")}) == 4


def test_folder_of_code_does_not_grow_for_ever(tmp_path):
    cache = ProgramCache(tmp_path, most=3)
    for i in range(10):
        cache.put(cache.key(str(i)), b"code")
    assert len(list(tmp_path.iterdir())) == 3
