"""Schedules: what a file says, what is wrong with it, and what is drawn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigError
from fairlead.stress import (
    LEVELS,
    Phase,
    Pressure,
    Schedule,
    draw_schedule,
    parse_schedule,
    parse_share,
    read_schedule,
    write_schedule,
)

GOOD = """
phases:
  - {seconds: 30, pressure: {w01: 25%, w04: 0.5}}
  - seconds: 1.5
  - seconds: 10
    pressure:
      w01: {cpu: 50%, cache: true, memory_bandwidth: true}
"""


def test_a_file_gives_phases_with_the_pressure_on_each_node(tmp_path):
    path = tmp_path / "pressure.yaml"
    path.write_text(GOOD)
    schedule = read_schedule(path)
    assert schedule.nodes == ("w01", "w04")
    assert schedule.seconds == 41.5
    first, second, third = schedule.phases
    assert first.on("w04") == Pressure(share=0.5)
    assert second.on("w01").share == 0
    assert third.on("w01") == Pressure(share=0.5, kinds=("cache", "memory-bandwidth"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phases:\n  - seconds: 1\n    pressure: {w01: 120%}\n", "line 3, phases.0.pressure.w01: must be a share"),
        ("phases:\n  - seconds: 1\n    pressure: {w01: 50}\n", "such as 50% or 0.5; got 50"),
        ("phases:\n  - pressure: {w01: 50%}\n", "line 2, phases.0.seconds: is missing."),
        ("phases:\n\n  - seconds: -1\n", "line 3, phases.0.seconds: must be positive and finite"),
        ("phases:\n  - {seconds: 1, presure: {}}\n", "line 2, phases.0.presure: unknown key. Did you mean 'pressure'?"),
        (
            "phases:\n  - seconds: 1\n    pressure:\n      a: {cpu: 5%,\n          cach: true}\n",
            "line 5, phases.0.pressure.a.cach: unknown key. Did you mean 'cache'?",
        ),
        ("phases: []\n", "line 1, phases: must hold at least one phase, such as"),
        ("stages: []\n", "phases: is missing."),
        ("phases: [\n", "line 2: not valid YAML"),
        ("", "the file is empty"),
    ],
    ids=["above", "no-percent", "no-time", "negative", "misspelt", "inner", "none", "no-phases", "yaml", "empty"],
)
def test_what_is_wrong_is_said_with_its_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_schedule(text, "pressure.yaml")
    assert str(caught.value).startswith("pressure.yaml: ")
    assert message in str(caught.value)
    assert len(caught.value.faults) == 1 + (text == "stages: []\n")


def test_all_faults_are_listed_at_once():
    text = "phases:\n  - {seconds: 0}\n  - {seconds: 1, pressure: {a: much}}\n  - {pressure: {a: {cache: 1}}, to: 2}\n"
    with pytest.raises(ConfigError) as caught:
        parse_schedule(text, "x")
    assert [fault.path for fault in caught.value.faults] == [
        "line 2, phases.0.seconds",
        "line 3, phases.1.pressure.a",
        "line 4, phases.2.seconds",
        "line 4, phases.2.pressure.a.cpu",
        "line 4, phases.2.pressure.a.cache",
        "line 4, phases.2.to",
    ]


def test_a_file_that_is_not_there_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file.*Give the path of a YAML file"):
        read_schedule(tmp_path / "no.yaml")


def test_the_same_seed_draws_the_same_schedule():
    nodes = ("w01", "w02", "w03", "w04")
    one = draw_schedule(nodes, phases=50, seconds=5, seed=7)
    assert one == draw_schedule(nodes, phases=50, seconds=5, seed=7)
    assert one != draw_schedule(nodes, phases=50, seconds=5, seed=8)
    drawn = [phase.on(node).share for phase in one.phases for node in nodes]
    assert set(drawn) == set(LEVELS)
    for level in LEVELS:  # 200 draws, 50 expected of each
        assert 25 < drawn.count(level) < 75


pressures = st.builds(
    Pressure,
    share=st.integers(0, 100).map(lambda percent: percent / 100),
    kinds=st.sampled_from([("cpu",), ("cache",), ("memory-bandwidth",), ("cache", "memory-bandwidth")]),
)
phases = st.builds(
    Phase, seconds=st.integers(1, 600).map(float), pressure=st.dictionaries(st.sampled_from("abc"), pressures)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(phases, min_size=1, max_size=4))
def test_what_is_written_is_read_again(found):
    schedule = Schedule(phases=tuple(found))
    assert parse_schedule(write_schedule(schedule), "x") == schedule


@pytest.mark.parametrize(("text", "share"), [("50%", 0.5), (" 7.5 % ", 0.075), (0.25, 0.25), ("1", 1.0), (0, 0.0)])
def test_shares_as_people_write_them(text, share):
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["150%", "-1%", "half", 50, None, True])
def test_other_shares_are_refused(text):
    with pytest.raises(ValueError, match="must be a share from 0% to 100%"):
        parse_share(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"share": 1.1}, "share must be in"), ({"kinds": ("disk",)}, "kinds must be some of"), ({"kinds": ()}, "none")],
    ids=["share", "kind", "no-kind"],
)
def test_pressure_out_of_range_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Pressure(**settings)
