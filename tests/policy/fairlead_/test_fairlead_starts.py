"""Fairlead starts instances ahead: what a start may take from instances that are warm, and how long it is taken for."""

from dataclasses import replace
from itertools import count
from math import exp, inf

import msgspec
import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Policy, Reject, Warm
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.outlook import chance_above
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Host, Row, Table
from fairlead.testing import cluster, declared, scenario, site_of

COLD_S = 4.0  # how long a start really takes
BEGIN_S = 20.0  # when requests begin to come
DETECT = Table(tuple(Row(batch=n, vcpus=1, seconds=0.008 + 0.002 * n) for n in range(1, 9)))  # 8 in 24 ms
CAPTION = Table((Row(vcpus=0.25, seconds=0.001),))
WARM = {"detect": Configuration(batch=8, vcpus=1), "caption": Configuration(vcpus=0.25)}


class Told(Policy):
    """The policy where one instance of each function is warm, told that starts take `believed_s`."""

    def __init__(self, believed_s):
        self.policy, self.believed_s, self.calls = Fairlead(), believed_s, count()
        self.warmed = []

    def prepare(self, site, rng):
        self.policy.prepare(site_of(starting_in(self.believed_s, self.scenario)), rng)

    def decide(self, view):
        if not next(self.calls):
            yield from (Warm(name, size, "n0") for name, size in WARM.items())
            yield from (Reject(request.id, "only so that the policy is asked") for request in view.fresh)
            return
        for action in self.policy.decide(view):
            if isinstance(action, Warm):
                self.warmed.append((view.now, action.function))
            yield action


def starting_in(seconds, where):
    """The scenario in which instances take so long to start."""
    profiles = {
        name: msgspec.structs.replace(profile, cold_start_s=seconds) for name, profile in where.profiles.items()
    }
    return replace(where, profiles=profiles)


def photos(vcpus, rate_rps, seconds):
    """`detect` in batches and then `caption`, within 80 ms, on one node; requests come at equal distances."""
    arrivals = [0.0, *(BEGIN_S + n / rate_rps for n in range(int(seconds * rate_rps)))]
    steps = {"detect": DETECT, "caption": CAPTION}
    functions = {name: declared(law, cold_start_s=COLD_S, idle_holds="memory", warm=1) for name, law in steps.items()}
    return scenario(functions, arrivals=arrivals, slo_s=0.08, on=cluster(1, vcpus=vcpus), duration_s=100.0)


def answered(where, policy):
    """The share of requests that is answered in time, in each second from the beginning."""
    policy.scenario = where
    requests = simulate(where, policy, seed=0).requests.filter(pl.col("arrival") >= BEGIN_S)
    in_time = (pl.col("outcome") == "completed") & (pl.col("end") <= pl.col("deadline"))
    by_second = requests.group_by(((pl.col("arrival") - BEGIN_S) // 1).alias("second"))
    return by_second.agg(in_time.mean().alias("share")).sort("second")["share"].to_list()


class TestSlowStarts:
    """One node of 1.25 vCPUs: room for one `detect` and one `caption` at a time."""

    @pytest.mark.parametrize(("rate_rps", "least"), [(300, 0.9), (450, 0.55)], ids=["room", "overload"])
    @pytest.mark.parametrize("believed_s", [0.2, COLD_S], ids=["believed-quick", "known-slow"])
    def test_warm_instances_go_on_answering_while_others_start(self, believed_s, rate_rps, least):
        """Two starts at a time would leave no room for `detect`: nothing was answered for 8 s, twice a start."""
        assert min(answered(photos(1.25, rate_rps, 10.0), Told(believed_s))) > least

    def test_a_start_that_takes_longer_than_believed_counts_until_it_is_ready(self):
        """Starts may take half of the node, so two of them may be under way, for as long as they really take."""
        policy = Told(0.2)
        answered(photos(2.5, 600, 10.0), policy)
        begun = [at for at, _ in policy.warmed]
        assert begun
        assert all(sum(at <= later < at + COLD_S for at in begun) <= 2 for later in begun)


class TestRequestsThatCanWait:
    """A served workflow on two cores whose requests have time for many runs of every stage."""

    def served(self, rate_rps):
        """Eight requests are read together in 13 ms; each is then looked up in 4 ms and answered in 3 ms."""
        laws = {
            "read": Table(tuple(Row(batch=n, vcpus=1, seconds=0.009 + 0.0005 * n) for n in (1, 2, 4, 8))),
            "look-up": Table((Row(vcpus=1, seconds=0.004),)),
            "reply": Table((Row(vcpus=1, seconds=0.003),)),
        }
        functions = {name: declared(law, cold_start_s=3.0, idle_holds="memory", warm=1) for name, law in laws.items()}
        arrivals = [n / rate_rps for n in range(400)]
        made = scenario(functions, arrivals=arrivals, slo_s=0.5, on=cluster(1, vcpus=2), duration_s=arrivals[-1])
        return replace(made, host=Host(cores=2, request_s=1e-4, turn_s=1e-4, send_s=1e-4, end_s=1e-4, answer_s=1e-4))

    @pytest.mark.parametrize("rate_rps", [150, 200])
    def test_no_start_takes_a_core_from_instances_that_keep_up(self, rate_rps):
        """A second `look-up` would take one of two vCPUs for 3 s: 44 and 40 % were answered in time.

        The first is busy for 0.8 of the time at most, and a request can wait 0.16 s, for 40 of its runs.
        """
        recording = simulate(self.served(rate_rps), "fairlead", seed=0)
        assert recording.requests.select((pl.col("end") <= pl.col("deadline")).mean()).item() == 1.0
        assert sorted(recording.instances["function"].to_list()) == ["look-up", "read", "reply"]


class TestColdStarts:
    def menu(self, **settings):
        where = scenario(declared(1.0, cold_start_s=0.2, **settings))
        site = site_of(where)
        return Menu(site.functions["f"], site.profiles["f"], site.cluster, Supply(site.cluster))

    def test_the_first_observed_start_replaces_the_declared_time_and_later_ones_move_it(self):
        menu = self.menu()
        menu.was_started("plain", 4.0)
        assert menu.cold_s == pytest.approx(4.0)
        menu.was_started("plain", 2.0)
        assert menu.cold_s == pytest.approx(3.0)
        for _ in range(30):
            menu.was_started("plain", 0.2)
        assert menu.cold_s == pytest.approx(0.2, rel=0.01)

    def test_what_was_not_started_teaches_nothing(self):
        menu = self.menu()
        menu.was_started("plain", 0.0)  # taken over from a former gateway
        menu.was_started("plain", inf)
        assert menu.cold_s == pytest.approx(0.2)

    def test_where_no_instance_stays_runs_take_as_long_as_starts_are_observed_to(self):
        menu = self.menu(keep_alive_s=0.0)
        assert menu.means_s == pytest.approx([1.2])
        menu.was_started("plain", 4.0)
        menu.learn(menu._estimate)
        assert (menu.cold_s, menu.means_s) == (0.0, pytest.approx([5.0]))


@pytest.mark.parametrize(
    ("number", "mean", "chance"),
    [(0, 0.0, 0.0), (0, 1.0, 1 - exp(-1)), (1, 1.0, 1 - 2 * exp(-1)), (5, 1000.0, 1.0)],
)
def test_chance_that_more_instances_are_busy(number, mean, chance):
    assert chance_above(number, mean) == pytest.approx(chance)
