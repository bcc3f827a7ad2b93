"""FaST-GShare: how many pods of which size, where they lie on a GPU, and what they take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import Cluster, Configuration, Device, Node, Price
from fairlead.policy import Site, Start, Wake, Warm
from fairlead.policy.base import NodeChange
from fairlead.policy.fast_gshare.fleet import Fleet, Pod
from fairlead.policy.fast_gshare.packing import Packing, Rectangle
from fairlead.policy.fast_gshare.policy import FastGshare
from fairlead.policy.fast_gshare.sizing import Size, needed, sizes, superfluous
from fairlead.policy.kit.options import Options
from fairlead.profile import Row, Table
from fairlead.testing import cluster, decisions, declared, scenario, site_of
from fairlead.workload import Listed, NodeFault

# --- packing -------------------------------------------------------------------------------------------------------


def test_a_corner_leaves_two_largest_rectangles_that_overlap():
    packing = Packing(10, 10)
    assert packing.take(4, 3) == Rectangle(0, 0, 4, 3)
    assert set(packing.free) == {Rectangle(4, 0, 6, 10), Rectangle(0, 3, 10, 7)}


def test_the_place_that_leaves_least_is_taken():
    packing = Packing(10, 10)
    packing.take(4, 3)
    # 6 x 10 and 10 x 7 would both do; the first has less area.
    assert packing.best(6, 7) == Rectangle(4, 0, 6, 10)
    assert packing.best(7, 7) == Rectangle(0, 3, 10, 7)
    assert packing.best(7, 8) is None


def test_what_does_not_fit_is_not_turned():
    packing = Packing(2, 10)
    assert packing.best(3, 2) is None
    with pytest.raises(ValueError, match="no free place of 3 x 2"):
        packing.take(3, 2)


def test_what_is_given_back_joins_what_is_free_beside_it():
    packing = Packing(10, 10)
    first, second = packing.take(10, 5), packing.take(10, 5)
    assert packing.free == []
    packing.give_back(first)
    packing.give_back(second)
    assert packing.free == [Rectangle(0, 0, 10, 10)]


def test_two_halves_of_the_time_share_a_whole_gpu():
    packing = Packing(10, 7)
    packing.take(5, 7)
    assert packing.best(5, 7) == Rectangle(5, 0, 5, 7)
    assert packing.best(6, 7) is None


def _cells(rectangle: Rectangle) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(rectangle.x, rectangle.x + rectangle.width)
        for y in range(rectangle.y, rectangle.y + rectangle.height)
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), max_size=12))
def test_free_rectangles_are_all_the_largest_there_are(steps):
    packing = Packing(6, 6)
    for width, height, gives_back in steps:
        if gives_back and packing.taken:
            packing.give_back(packing.taken[0])
        elif packing.best(width, height) is not None:
            packing.take(width, height)
    taken = [_cells(each) for each in packing.taken]
    used = set().union(*taken)
    assert sum(map(len, taken)) == len(used), "two overlap"
    free = {(x, y) for x in range(6) for y in range(6)} - used
    every = [
        Rectangle(x, y, w, h)
        for x in range(6)
        for y in range(6)
        for w in range(1, 7 - x)
        for h in range(1, 7 - y)
        if _cells(Rectangle(x, y, w, h)) <= free
    ]
    largest = {one for one in every if not any(other != one and other.covers(one) for other in every)}
    assert set(packing.free) == largest


# --- sizes ---------------------------------------------------------------------------------------------------------

ONE, TWO, FOUR = Configuration(vcpus=1), Configuration(vcpus=2), Configuration(vcpus=4)
SMALL, MIDDLE, LARGE = Size(ONE, 2.0, 2.0), Size(TWO, 6.0, 3.0), Size(FOUR, 10.0, 2.5)


@pytest.mark.parametrize(
    ("gap_rps", "expected"),
    [(0.0, []), (1.0, [SMALL]), (5.0, [MIDDLE]), (6.0, [MIDDLE]), (13.0, [MIDDLE, MIDDLE, SMALL]), (-3.0, [])],
    ids=["none", "rest-only", "rest-is-the-best", "fills-exactly", "two-and-a-rest", "too-much-already"],
)
def test_a_gap_is_filled_with_the_most_efficient_and_a_small_rest(gap_rps, expected):
    assert needed(gap_rps, [SMALL, MIDDLE, LARGE]) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.01, 100),
    st.lists(st.tuples(st.floats(0.1, 20), st.floats(0.1, 10)), min_size=1, max_size=6),
)
def test_a_gap_is_closed_and_not_by_one_too_many(gap_rps, pairs):
    available = [Size(ONE, rps, rpr) for rps, rpr in pairs]
    found = needed(gap_rps, available)
    assert sum(size.rps for size in found) >= gap_rps * (1 - 1e-9)
    assert sum(size.rps for size in found[:-1]) <= gap_rps * (1 + 1e-9)


def test_the_least_efficient_go_first_while_the_others_can_do_the_rate():
    pods = [LARGE, SMALL, MIDDLE, MIDDLE]  # 24 in all; from the least efficient: 2, 10, 6, 6
    assert superfluous(pods, 13.0) == [SMALL]
    assert superfluous(pods, 12.0) == [SMALL, LARGE]
    assert superfluous(pods, 23.0) == []


def test_one_stays_when_nothing_comes_any_more():
    assert superfluous([SMALL, MIDDLE], 0.0) == [SMALL]
    assert superfluous([SMALL], 0.0) == []


PRICE = Price(vcpu_usd_per_hour=3600, vgpu_usd_per_hour=3600)  # a dollar per second for either


def _options(*rows: tuple[int, float, float]) -> Options:
    """From (batch, vcpus, latency)."""
    return Options(
        tuple(Configuration(batch=batch, vcpus=vcpus) for batch, vcpus, _ in rows),
        tuple(latency_s for *_, latency_s in rows),
        tuple(0.0 for _ in rows),
    )


def test_sizes_keep_the_limit_and_do_more_with_more():
    options = _options((1, 1, 1.0), (4, 1, 2.0), (8, 1, 5.0), (1, 2, 0.6), (4, 2, 1.0))
    # Within 2 s: at one vCPU 4 in 2 s beats 1 in 1 s; at two, 4 in 1 s beats 1 in 0.6 s. 8 in 5 s take too long.
    found = sizes(options, PRICE, 2.0)
    assert [(size.configuration.batch, size.configuration.vcpus) for size in found] == [(4, 1), (4, 2)]
    assert [(size.rps, size.rpr) for size in found] == [(2.0, 2.0), (4.0, 2.0)]


def test_if_no_size_is_quick_enough_there_is_the_fastest():
    found = sizes(_options((1, 1, 1.0), (4, 1, 2.0), (1, 2, 0.6)), PRICE, 0.5)
    assert [size.configuration for size in found] == [Configuration(vcpus=2)]


def test_without_prices_resources_count():
    free = Price(vcpu_usd_per_hour=0, vgpu_usd_per_hour=0)
    (size,) = sizes(_options((1, 2, 0.5)), free, 1.0)
    assert (size.rps, size.rpr) == (2.0, 1.0)


# --- where pods go -------------------------------------------------------------------------------------------------

SHARES = tuple(Configuration(vcpus=1, vgpus=vgpus) for vgpus in (1, 3, 4, 7))
ON_GPU = declared(1.0, configurations=SHARES, memory_gb=1)


def _fleet(**settings) -> tuple[Fleet, Site]:
    site = site_of(scenario(ON_GPU, on=cluster(2, **{"vcpus": 4, "vgpus": 7, **settings})))
    return Fleet(site.cluster.nodes), site


def _put(fleet: Fleet, site: Site, node: str, vgpus: float, vcpus: float = 1) -> Pod:
    configuration = Configuration(vcpus=vcpus, vgpus=vgpus)
    pod = Pod(site.functions["f"], configuration, node, 0, ("main", "f"), (configuration,))
    fleet.open(pod)
    return pod


def _where(fleet: Fleet, site: Site, vgpus: float, warm=frozenset()) -> tuple[str, int | None] | None:
    return fleet.find(site.functions["f"], Configuration(vcpus=1, vgpus=vgpus), site.profiles["f"], warm)


def test_a_pod_goes_where_it_leaves_least():
    fleet, site = _fleet()
    assert _where(fleet, site, 4) == ("n0", 0)
    _put(fleet, site, "n1", 3)
    assert _where(fleet, site, 4) == ("n1", 0)
    assert _where(fleet, site, 7) == ("n0", 0)


def test_a_pod_needs_vcpus_too():
    fleet, site = _fleet()
    _put(fleet, site, "n1", 3, vcpus=4)
    assert _where(fleet, site, 4) == ("n0", 0)
    _put(fleet, site, "n0", 1, vcpus=4)
    assert _where(fleet, site, 1) is None


def test_a_pod_needs_memory_too():
    fleet, site = _fleet(memory_gb=1)
    _put(fleet, site, "n1", 3)
    assert _where(fleet, site, 4) == ("n0", 0)


def test_a_warm_instance_without_a_pod_comes_before_a_tight_place():
    fleet, site = _fleet()
    _put(fleet, site, "n1", 3)
    assert _where(fleet, site, 4, warm={("n0", 0)}) == ("n0", 0)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.0, "plain"), (1.05, "plain"), (1.3, "with-gpu")], ids=["equal", "about", "slower"]
)
def test_a_pod_without_a_gpu_leaves_nodes_with_gpus_their_vcpus(seconds, expected):
    # Two vCPUs are a tighter place than four, but the GPU beside them would be of no use without them.
    nodes = (
        Node(name="with-gpu", kind="gpu", vcpus=2, devices=(Device(vgpus=7),)),
        Node(name="plain", kind="cpu", vcpus=4),
    )
    rows = (Row(kind="gpu", vcpus=1, seconds=1.0), Row(kind="cpu", vcpus=1, seconds=seconds))
    site = site_of(scenario(declared(Table(rows)), on=Cluster(nodes=nodes)))
    assert _where(Fleet(nodes), site, 0) == (expected, None)


def test_a_closed_pod_gives_its_place_back():
    fleet, site = _fleet()
    pods = [_put(fleet, site, node, 7) for node in ("n0", "n1")]
    assert _where(fleet, site, 1) is None
    fleet.close(pods[1])
    assert _where(fleet, site, 7) == ("n1", 0)


@pytest.mark.parametrize(("sharing", "expected"), [("mps", ("n1", 0)), ("mig", ("n0", 0))])
def test_two_slices_of_three_fill_a_mig_device(sharing, expected):
    fleet, site = _fleet(sharing=sharing)
    _put(fleet, site, "n1", 3)
    _put(fleet, site, "n1", 3)
    assert _where(fleet, site, 1) == expected


def test_pods_of_a_lost_node_are_forgotten_and_it_is_empty_when_it_is_back():
    fleet, site = _fleet()
    pod = _put(fleet, site, "n1", 7)
    node = site.cluster.nodes[1]
    assert fleet.follow([NodeChange(node, "lost")]) == [pod]
    _put(fleet, site, "n0", 7)
    assert _where(fleet, site, 1) is None
    assert fleet.follow([NodeChange(node, "joined")]) == []
    assert _where(fleet, site, 7) == ("n1", 0)


# --- the policy ----------------------------------------------------------------------------------------------------


def test_every_function_gets_a_pod_at_the_first_arrival_and_nothing_starts_before_it_is_warm():
    where = scenario({"a": declared(0.5, cold_start_s=2), "b": declared(0.5, cold_start_s=3)})
    actions = decisions(FastGshare(tick_s=10), 9.0, scenario=where)
    assert actions == [Warm("a", ONE, "n0"), Warm("b", ONE, "n0"), Wake(10.0)]
    rows = simulate(where, FastGshare(tick_s=10)).invocations
    # The second stage waits for its pod from 2.5, when the first ends, until 3.
    assert rows["start"].to_list() == pytest.approx([2.0, 3.0])
    assert not rows["is_cold"].any()


BATCHES = Table((Row(seconds=0.5), Row(batch=2, seconds=0.6), Row(batch=4, seconds=0.9)))


def test_a_free_pod_takes_what_waits_up_to_its_batch_and_no_larger_than_it_needs():
    # Of twenty runs nineteen are planned to take 1.2 x their time: two at once keep 1 s, four do not.
    where = scenario(BATCHES, arrivals=(0.0, 0.0, 0.0), slo_s=1)
    (start, _) = decisions(FastGshare(tick_s=10), 1.0, 1.0, 1.0, scenario=where)
    assert isinstance(start, Start)
    assert (len(start.batch), start.configuration) == (2, Configuration(batch=2))
    rows = simulate(where, FastGshare(tick_s=10)).invocations
    assert sorted(rows["start"]) == pytest.approx([0.0, 0.0, 0.6])
    assert sorted(rows["end"]) == pytest.approx([0.6, 0.6, 1.1])


@pytest.mark.parametrize(("slo_s", "batch"), [(2.0, 4), (1.5, 2), (1.1, 1), (0.1, 1)])
def test_the_slo_is_shared_by_the_average_time_of_stages(slo_s, batch):
    # On average the first is planned to take 0.8 s and the second 0.6 s: the first has 4/7 of the SLO for its 0.6 s,
    # 0.72 s or 1.08 s. In the last case nothing is quick enough, and the fastest is taken.
    where = scenario({"first": BATCHES, "second": 0.5}, slo_s=slo_s)
    start, *_ = decisions(FastGshare(tick_s=10), *(slo_s,) * 4, scenario=where)
    assert isinstance(start, Start)
    assert (len(start.batch), start.configuration.batch) == (batch, batch)


def _most_at_once(rows, since: float, until: float) -> int:
    changes = sorted(
        change
        for start, end in zip(rows["start"], rows["end"], strict=True)
        if since <= start < until
        for change in ((start, 1), (end, -1))
    )
    running = most = 0
    for _, change in sorted(changes, key=lambda each: (each[0], each[1])):
        running += change
        most = max(most, running)
    return most


BURST = tuple(i / 4 for i in range(80))  # four per second for 20 s


def test_pods_are_added_at_a_tick_by_the_rate_and_what_waits():
    rows = simulate(scenario(0.5, arrivals=BURST, on=cluster(vcpus=16)), FastGshare(tick_s=10)).invocations
    assert _most_at_once(rows, 0, 10) == 1
    # At 10 s 41 have come, of which 20 wait: 6.1 per second. One pod does 1.7; the gap takes two more, and a rest.
    assert _most_at_once(rows, 10, 20) == 4


def test_a_small_gap_is_left_alone():
    rows = simulate(
        scenario(0.5, arrivals=BURST, on=cluster(vcpus=16)), FastGshare(tick_s=10, threshold=10)
    ).invocations
    assert _most_at_once(rows, 0, 100) == 1


def test_pods_go_when_the_rate_falls_and_one_stays():
    quiet = tuple(30.0 + 2 * i for i in range(30))
    where = scenario(0.5, arrivals=(*BURST, *quiet, 95.0, 95.0), on=cluster(vcpus=16))
    rows = simulate(where, FastGshare(tick_s=10)).invocations
    last = sorted(rows.filter(rows["ready"] == 95.0)["start"])
    assert last == pytest.approx([95.0, 95.5])


def test_a_pod_that_comes_back_finds_its_instance_warm():
    functions = {"f": declared(0.5, cold_start_s=5, idle_holds="memory")}
    quiet = tuple(50.0 + 2 * i for i in range(20))
    again = tuple(100 + each for each in BURST)
    where = scenario(functions, arrivals=(*BURST, *quiet, *again), on=cluster(vcpus=16))
    recording = simulate(where, FastGshare(tick_s=10))
    started = recording.instances["started"]
    assert started.max() < 50, "an instance was started for the second burst"
    assert _most_at_once(recording.invocations, 100, 120) >= 3


def test_a_queue_without_a_pod_takes_the_place_of_an_idle_one():
    whole = {name: declared(0.5, configurations=(FOUR,), cold_start_s=1) for name in ("a", "b")}
    where = scenario(
        whole,
        workflows={"main": ("a",), "other": ("b",)},
        arrivals=(0.0, Listed("other", (0.2, 5.0)), Listed("main", (5.0,))),
    )
    rows = simulate(where, FastGshare(tick_s=10)).invocations
    starts = {(f, ready): start for f, ready, start in zip(rows["function"], rows["ready"], rows["start"], strict=True)}
    # The room is a's until its first run ends at 1.5; then b's instance starts.
    assert starts["a", 0.0] == 1.0
    assert starts["b", 0.2] == 2.5
    assert rows.height == 4


def test_work_goes_on_elsewhere_when_a_node_is_lost():
    where = scenario(
        declared(1.0, cold_start_s=0.5),
        arrivals=(0.0, 20.0),
        on=cluster(2),
        node_faults=(NodeFault(node="n0", at_s=1.0),),
    )
    recording = simulate(where, FastGshare(tick_s=10))
    rows = recording.invocations
    done = rows.filter(rows["outcome"] == "done")
    assert done["node"].to_list() == ["n1", "n1"]
    assert done["start"].to_list() == pytest.approx([1.5, 20.0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tick_s": 0}, "tick_s must be positive and finite; got 0."),
        ({"tick_s": float("inf")}, "tick_s must be positive and finite; got inf."),
        ({"window_s": 0}, "window_s must be positive and finite; got 0."),
        ({"threshold": -0.1}, "threshold must be finite and not negative; got -0.1."),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        FastGshare(**parameters)


def test_published_parameters_are_the_defaults():
    assert (FastGshare().tick_s, FastGshare().window_s, FastGshare().threshold) == (2.0, 10.0, 0.2)


def test_pods_follow_a_step_of_the_rate_within_seconds():
    # One pod does 1.7 per second. After 2 s 9 have come, of which 5 wait: 4.5 + 0.5 per second need three pods.
    rows = simulate(scenario(0.5, arrivals=BURST, on=cluster(vcpus=16)), FastGshare()).invocations
    assert _most_at_once(rows, 0, 2) == 1
    assert _most_at_once(rows, 2, 3) == 3
    last = rows.filter(rows["ready"] > 8)
    assert (last["start"] - last["ready"]).max() < 0.5
