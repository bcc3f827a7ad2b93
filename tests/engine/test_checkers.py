"""The independent checkers find what they look for: a sound recording passes, a forged one does not."""

from dataclasses import replace

import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.profile import Row, Table
from fairlead.testing import (
    SCENARIOS,
    check_accounts,
    check_capacity,
    check_immutable,
    check_order,
    cluster,
    declared,
    mig_fits,
    scenario,
)


def check(recording, where):
    check_capacity(recording, where)
    check_order(recording, where)
    check_accounts(recording)


@pytest.fixture(scope="module")
def chain():
    where = SCENARIOS["chain"]()
    return simulate(where), where


def forged(recording, table, **columns):
    """A recording in which these columns of the first row of a table have these values."""
    frame = getattr(recording, table)
    first = pl.int_range(frame.height) == 0
    changes = {
        name: pl.when(first).then(pl.lit(value, dtype=frame.schema[name])).otherwise(pl.col(name))
        for name, value in columns.items()
    }
    return replace(recording, **{table: frame.with_columns(**changes)})


@pytest.mark.parametrize("name", SCENARIOS)
def test_sound_recordings_pass(name):
    where = SCENARIOS[name]()
    check(simulate(where), where)


@pytest.mark.parametrize(
    ("table", "columns", "complaint"),
    [
        ("invocations", {"vcpus": 99.0}, "vCPUs in use"),
        ("invocations", {"node": "n1"}, "instance"),
        ("invocations", {"start": -1.0}, "before"),
        ("invocations", {"ready": 99.0}, "before"),
        ("invocations", {"end": 99.0}, "after|at once|in use"),
        ("invocations", {"batch_size": 2}, "has 1 rows"),
        ("invocations", {"instance": 77}, "of which nothing is recorded"),
        ("invocations", {"stage": "nowhere"}, "no such stage"),
        ("invocations", {"function": "label"}, "ran label"),
        ("invocations", {"is_cold": False}, "started on demand"),
        ("invocations", {"cost_usd": 1.0}, "cost"),
        ("invocations", {"outcome": "vanished"}, "never done"),
        ("invocations", {"device": 0}, "device"),
        ("invocations", {"attempt": 2}, "first there is"),
        ("invocations", {"item": 3}, "never done"),
        ("invocations", {"cold_s": 0.1}, "waited|ended"),
        ("requests", {"request": 1}, "ended 2 times|after its request"),
        ("requests", {"request": 99}, "missing|nothing is recorded|without having run"),
        ("requests", {"outcome": "lucky"}, "lucky"),
        ("requests", {"end": None}, "has no end|last stage"),
        ("requests", {"end": 99.0}, "last stage"),
        ("requests", {"reason": "no reason"}, "reason"),
        ("requests", {"cost_usd": 1.0}, "cost"),
        ("instances", {"instance": 1}, "recorded twice|in use"),
        ("instances", {"started": 0.1}, "before the instance did"),
        ("instances", {"stopped": 0.1}, "after the instance stopped|at once"),
        ("instances", {"on_demand": False}, "on demand"),
        ("instances", {"busy_s": 99.0}, "was busy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_forgery_is_found(chain, table, columns, complaint):
    recording, where = chain
    with pytest.raises(AssertionError, match=complaint):
        check(forged(recording, table, **columns), where)


def test_order_of_stages_is_checked():
    where = scenario({"a": 1.0, "b": 2.0})
    recording = simulate(where)
    early = recording.invocations.with_columns(
        ready=pl.when(pl.col("stage") == "b").then(0.5).otherwise(pl.col("ready")),
        start=pl.when(pl.col("stage") == "b").then(0.5).otherwise(pl.col("start")),
    )
    with pytest.raises(AssertionError, match=r"before a\[0\] ended at 1\.0"):
        check_order(replace(recording, invocations=early), where)


def test_missing_stage_is_found():
    where = scenario({"a": 1.0, "b": 2.0})
    recording = simulate(where)
    short = recording.invocations.filter(pl.col("stage") == "b")
    with pytest.raises(AssertionError, match="though a before it was never done"):
        check_order(replace(recording, invocations=short), where)


def test_memory_of_living_instances_is_summed():
    where = scenario(declared(1.0, memory_gb=4, keep_alive_s=100), arrivals=[0, 0], on=cluster(memory_gb=8))
    recording = simulate(where)
    check_capacity(recording)
    smaller = replace(recording, cluster=cluster(memory_gb=7))
    with pytest.raises(AssertionError, match=r"8 GB of memory in use on n0 at 0\.0: it has 7"):
        check_capacity(smaller)


def test_device_memory_and_kept_slices_need_the_scenario():
    gpu = declared(Table((Row(vgpus=2, seconds=1.0),)), device_memory_gb=4)
    where = scenario(gpu, arrivals=[0, 0], on=cluster(vgpus=4, device_memory_gb=8))
    recording = simulate(where)
    check_capacity(recording, where)
    smaller = replace(recording, cluster=cluster(vgpus=4, device_memory_gb=7))
    check_capacity(smaller)
    with pytest.raises(AssertionError, match="GB of device memory"):
        check_capacity(smaller, where)


def test_idle_slices_count():
    where = scenario({"a": declared(1.0), "b": declared(1.0)}, on=cluster(vcpus=2))
    recording = simulate(where)
    check_capacity(recording, where)
    narrow = replace(recording, cluster=cluster(vcpus=1))
    check_capacity(narrow)  # one after the other, they need one
    with pytest.raises(AssertionError, match="idle instances included"):
        check_capacity(narrow, where)


@pytest.mark.parametrize(
    ("sizes", "fits"), [((3, 3), True), ((4, 3), True), ((1,) * 7, True), ((4, 4), False), ((7, 1), False), ((), True)]
)
def test_mig_places(sizes, fits):
    assert mig_fits(sizes) is fits


def test_mutable_things_are_named_by_their_path():
    with pytest.raises(AssertionError, match=r"it\[1\] is a list, which can be changed"):
        check_immutable((1, [2]), "it")
