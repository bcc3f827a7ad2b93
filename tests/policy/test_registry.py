"""The registry: policies by name, their parameters, and what is said when something is wrong."""

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from fairlead.errors import ConfigError, DuplicateNameError, UnknownPolicyError
from fairlead.policy import (
    Policy,
    admit,
    make_policy,
    parameters,
    policy_class,
    policy_faults,
    policy_names,
    registry,
    role,
)
from fairlead.policy.fifo import Fifo
from fairlead.policy.registry import ADMITTED, merge


def test_names_are_sorted_and_each_leads_to_a_policy():
    names = policy_names()
    assert list(names) == sorted(names)
    assert {"fifo", "earliest-deadline", "least-loaded"} <= set(names)
    assert all(issubclass(policy_class(name), Policy) for name in names)


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_has_one_role_and_a_line_about_itself(name):
    found = policy_class(name)
    has_both = found.decide is not Policy.decide and found.adjust is not Policy.adjust
    assert role(found) in ("dispatch", "scale")
    assert not has_both
    assert (found.__doc__ or "").strip()


def test_unknown_name_lists_near_misses():
    with pytest.raises(UnknownPolicyError, match=r"No policy named 'fifoo'\. Did you mean 'fifo'\?") as caught:
        make_policy("fifoo")
    assert "least-loaded" in caught.value.available


def test_parameters_are_the_dataclass_fields():
    kind, default = parameters(Fifo)["queue_limit"]
    assert (kind, default) == (int | None, None)


def test_parameters_are_converted_and_checked():
    assert make_policy("fifo", {"queue_limit": 3}) == Fifo(queue_limit=3)
    assert make_policy("fifo") == Fifo()


@pytest.mark.parametrize(
    ("given", "path", "text"),
    [
        ({"queue_limit": -1}, "policy.queue_limit", "must not be negative"),
        ({"queue_limit": "many"}, "policy.queue_limit", "got 'many'"),
        ({"queue_limt": 1}, "policy.queue_limt", "Did you mean 'queue_limit'?"),
    ],
)
def test_wrong_parameters_say_what_and_where(given, path, text):
    (fault,) = policy_faults("fifo", given)
    assert fault.path == path
    assert text in fault.message
    with pytest.raises(ConfigError, match="policy fifo"):
        make_policy("fifo", given)


def test_all_faults_are_reported_at_once():
    assert len(policy_faults("fifo", {"one": 1, "two": 2})) == 2


def test_unknown_name_is_a_fault_where_it_stands():
    assert [f.path for f in policy_faults("nothing", {})] == ["policy.dispatch"]
    assert [f.path for f in policy_faults("nothing", {}, "scaler")] == ["scaler.scale"]


def test_name_of_an_outside_policy_may_not_be_taken():
    entry = EntryPoint("fifo", "elsewhere:Fifo", "fairlead.policies")
    with pytest.raises(DuplicateNameError, match="elsewhere:Fifo"):
        merge({"fifo": "fairlead.policy.fifo:Fifo"}, {"fifo": entry})
    assert merge({"a": "m:A"}, {"b": EntryPoint("b", "n:B", "fairlead.policies")}) == {"a": "m:A", "b": "n:B"}


def test_a_policy_without_either_method_says_so():
    @dataclass
    class Nothing(Policy):
        """Does nothing."""

    with pytest.raises(TypeError, match="not a dispatcher"):
        Nothing().decide(None)
    with pytest.raises(TypeError, match="not a scaler"):
        Nothing().adjust(None)
    assert Nothing().clairvoyant is False


OWN = """
from dataclasses import dataclass
from fairlead import Policy

@dataclass
class Mine(Policy):
    "Starts nothing."
    spare_s: float = 0.5

    def decide(self, view):
        return ()

class NotOne:
    pass
"""


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    (tmp_path / "own_policies_of_a_test.py").write_text(OWN)
    monkeypatch.setenv(ADMITTED, "[]")
    monkeypatch.setattr("sys.path", sys.path.copy())
    yield str(tmp_path)
    registry._known.cache_clear()


def test_an_address_is_known_only_once_it_was_admitted(own_folder):
    with pytest.raises(UnknownPolicyError):
        policy_class("own_policies_of_a_test:Mine")
    admit("own_policies_of_a_test:Mine", own_folder)
    assert make_policy("own_policies_of_a_test:Mine", {"spare_s": 2}).spare_s == 2.0
    with pytest.raises(UnknownPolicyError):
        policy_class("own_policies_of_a_test:NotOne")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("own_policies_of_a_test:Yours", "has no attribute 'Yours'"),
        ("own_policies_of_a_test:NotOne", "is no Policy"),
        ("no_such_module_anywhere:Mine", "No module named 'no_such_module_anywhere'"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_with_the_reason_and_stays_unknown(own_folder, address, why):
    with pytest.raises(ConfigError, match=why):
        admit(address, own_folder)
    with pytest.raises(UnknownPolicyError):
        policy_class(address)
