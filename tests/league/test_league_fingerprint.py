"""Content hashes: what changes them, and what does not."""

import sys
from dataclasses import replace

import pytest

from fairlead.league import fingerprint
from fairlead.league.catalogue import catalogue
from fairlead.league.fingerprint import DECIDING, hash_value, imported, module_hash, policy_hash, simulator_hash
from fairlead.league.plan import file_entrant, make_plan
from fairlead.profile import Constant, Exponential
from fairlead.workload import PolicyChoice, load_scenario


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package outside of Fairlead with two policies; one of them uses a module that the other does not."""
    folder = tmp_path / "touched"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "first.py").write_text("from touched.shared import VALUE\nfrom fairlead.policy.fifo import Fifo\n")
    (folder / "second.py").write_text("import fairlead.policy.fifo\n")
    (folder / "shared.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    forget()
    for name in [name for name in sys.modules if name.startswith("touched")]:
        del sys.modules[name]


def forget():
    for cached in (fingerprint._source, fingerprint._imports, fingerprint._path, fingerprint.policy_hash):
        cached.cache_clear()


def test_equal_values_have_equal_hashes():
    assert hash_value(load_scenario("quickstart")) == hash_value(load_scenario("quickstart"))


@pytest.mark.parametrize("name", catalogue().core)
def test_every_shipped_scenario_of_the_core_league_can_be_hashed(name):
    assert len(hash_value(load_scenario(name))) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Constant(1.0), Exponential(1.0)),
        (1, 1.0),
        (1, True),
        (("ab", "c"), ("a", "bc")),
        ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"a": 2}),
        (None, "None"),
    ],
    ids=["types", "int-float", "int-bool", "texts", "brackets", "mappings", "none"],
)
def test_different_values_have_different_hashes(one, other):
    assert hash_value(one) != hash_value(other)


def test_a_value_without_content_is_refused():
    with pytest.raises(TypeError, match="cannot be hashed by its content"):
        hash_value(lambda: None)


def test_imports_are_followed_and_other_policies_are_not_among_them():
    esg = imported("fairlead.policy.esg.policy", DECIDING)
    assert {"fairlead.policy.esg.planner", "fairlead.policy.base", "fairlead.model.workflow"} <= set(esg)
    assert not [name for name in esg if name.startswith(("fairlead.policy.orion", "fairlead.engine"))]


def test_a_new_row_in_the_table_of_policies_changes_no_hash():
    assert "fairlead.policy.registry" not in imported("fairlead.policy.fifo", DECIDING)


def test_a_touched_module_changes_those_who_import_it_only(package):
    before = [module_hash("touched.first"), module_hash("touched.second")]
    (package / "shared.py").write_text("VALUE = 2\n")
    forget()
    after = [module_hash("touched.first"), module_hash("touched.second")]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_data_file_beside_a_policy_counts(package):
    deeper = package / "deep"
    deeper.mkdir()
    (deeper / "__init__.py").write_text("")
    (deeper / "policy.py").write_text("")
    before = module_hash("touched.deep.policy")
    (deeper / "weights.bin").write_bytes(b"1")
    assert module_hash("touched.deep.policy") != before


def test_keys_follow_scenario_load_policy_parameters_and_seed():
    scenario = load_scenario("quickstart")
    other = replace(scenario, warmup_s=scenario.warmup_s + 1)
    tuned = replace(scenario, name="tuned", policy=PolicyChoice(name="fifo", parameters={"batching": "full"}))
    plans = [make_plan([file_entrant(one, ["fifo"], [1, 2])], 2) for one in (scenario, other, tuned)]
    keys = [run.key for plan in plans for run in plan.runs]
    assert len(set(keys)) == 12
    again = make_plan([file_entrant(scenario, ["fifo", "esg"], [1, 2])], 1)
    assert {run.key for run in again.runs if run.cell.policy == "fifo"} < set(keys)


def test_hashes_are_stable_within_a_process():
    assert simulator_hash() == simulator_hash()
    assert policy_hash("fifo") == policy_hash("fifo") != policy_hash("least-loaded")
