"""What `fairlead` keeps so that decisions are quick is what it would find by looking: lines, tables and places."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.core.site import make_site
from fairlead.model import SLO, Instance, Invocation, Request, Workflow
from fairlead.policy.base import Changes
from fairlead.policy.fairlead.admission import Admission, Run
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.lines import Line, Waiting
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.nodes import UNEVEN, Ranking
from fairlead.policy.fairlead.outlook import Outlook
from fairlead.policy.fairlead.roster import Roster
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario

TABLE = Table(tuple(Row(batch=batch, vcpus=vcpus, seconds=0.1 * batch / vcpus) for batch in (1, 4) for vcpus in (1, 2)))


def world(rate_rps: float = 0.0) -> Outlook:
    flows = {"w": Workflow.chain("w", "f", slo=SLO(latency_s=1.0))}
    site = make_site(scenario({"f": declared(TABLE)}, workflows=flows, arrivals=(), on=cluster(2, vcpus=2)))
    supply = Supply(site.cluster)
    menus = {"f": Menu(site.functions["f"], site.profiles["f"], site.cluster, supply)}
    outlook = Outlook(site, menus, supply)
    outlook.flows["w"].arrived = round(rate_rps)
    return outlook


def waiting(number: int) -> Invocation:
    return Invocation(number, number, "w", "f", "f", 0.0, 9.0)


class Everything:
    """A view in which everything waits that is not said to have left."""

    def __init__(self, left=()):
        self.left = set(left)

    def is_waiting(self, invocation):
        return invocation.id not in self.left


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 30), st.floats(0, 5)),
            st.tuples(st.just("discard"), st.integers(0, 30), st.none()),
            st.tuples(st.just("take"), st.integers(1, 4), st.integers(0, 3)),
        ),
        max_size=60,
    ),
    st.sets(st.integers(0, 30), max_size=8),
)
def test_the_first_and_the_counts_of_a_line_are_those_of_a_sorted_list(steps, left):
    everywhere = Waiting()
    line, model, view = Line(("w", "f"), world().flows["w"].first[0], everywhere), {}, Everything(left)
    for what, number, more in steps:
        if what == "add":
            line.add(waiting(number), more)
            model.setdefault(number, more)
        elif what == "discard" and number in model:
            found = next(line.at(i) for i in range(line.size) if line.at(i).id == number)
            line.discard(found)
            del model[number]
        elif what == "take":
            order = sorted(model, key=lambda one: (model[one], one))[more:]
            gone = []
            for one in order:
                if sum(other not in left for other in gone) == number:
                    break
                gone.append(one)
            taken = [one.id for one in line.take(view, number, more, 9.0)]
            assert taken == [one for one in gone if one not in left]
            for one in gone:
                del model[one]
        assert (line.size, line.waiting, everywhere.number) == (len(model),) * 3
        assert everywhere.lines() == ([line] if model else [])
        if model:
            first = min(model, key=lambda one: (model[one], one))
            assert (line.first().id, line.first_key()) == (first, model[first])


@pytest.mark.parametrize(("rate_rps", "most"), [(1.0, 1), (60.0, 5)], ids=["with-room", "short"])
def test_tables_are_worked_out_once_per_refresh_unless_prices_change(rate_rps, most):
    outlook = world()
    view = SimpleNamespace(now=0.0, profile=lambda name: outlook.menus[name]._estimate)
    outlook.refresh(view)
    outlook.flows["w"].arrived, view.now = round(rate_rps), 1.0
    step, worked_out = outlook.flows["w"].first[0], []
    tabulate = step.tabulate
    step.tabulate = lambda *how: (worked_out.append(how), tabulate(*how))[1]
    assert outlook.refresh(view)
    assert 1 <= len(worked_out) <= most
    assert outlook.is_short == (most > 1)
    kept = step.cost.copy()
    step._laid_out_for, outlook.flows["w"]._tabulated_for = None, ()
    outlook._tabulate()
    assert np.array_equal(step.cost, kept)


def test_what_fits_nowhere_is_asked_for_once_per_decision():
    outlook = world()
    menu = outlook.menus["f"]
    ground, asked = Ground(cluster(2, vcpus=2).nodes, outlook.supply, Roster()), []
    view = SimpleNamespace(place=lambda *what, **how: asked.append((what, how)))
    ground.look_again()
    assert ground.find(view, menu, 0, is_warm=False, evicts=True, left_s=1.0) is None
    assert (len(asked), ground.is_blocked(menu, 0)) == (1, True)
    for is_warm in (True, False):  # nor where less would do
        assert ground.find(view, menu, 0, is_warm=is_warm, evicts=False, left_s=1.0) is None
    assert len(asked) == 1
    ground.look_again()
    assert not ground.is_blocked(menu, 0)
    view.place = lambda *what, **how: "n1"
    assert ground.find(view, menu, 0, is_warm=True, evicts=True, left_s=1.0) == "n1"


def test_a_function_is_closed_once_none_of_its_options_finds_a_node():
    outlook = world()
    menu, ground = outlook.menus["f"], Ground(cluster(2, vcpus=2).nodes, outlook.supply, Roster())
    view = SimpleNamespace(place=lambda *what, **how: None)
    ground.look_again()
    for option in range(len(menu)):
        ground.find(view, menu, option, is_warm=False, evicts=True, left_s=1.0)
        is_last = len({menu.footprint[one] for one in range(option + 1)}) == len(menu.blocked)
        assert ground.is_closed(menu, is_warm=True, evicts=True) == is_last
    ground.look_again()
    assert not ground.is_closed(menu, is_warm=True, evicts=True)


def test_lines_in_which_something_waits_come_in_the_order_in_which_they_were_made():
    everywhere, step = Waiting(), world().flows["w"].first[0]
    lines = [Line(("w", str(n)), step, everywhere) for n in range(12)]
    for n in (9, 2, 11, 5):
        lines[n].add(waiting(n), 1.0)
    lines[11].discard(lines[11].first())
    assert everywhere.lines() == [lines[2], lines[5], lines[9]]


NODES = 5
of_nodes = st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)), min_size=NODES, max_size=NODES)
paces = st.lists(st.sampled_from((0.9, 1.0, UNEVEN, 1.3, 2.0)), min_size=NODES, max_size=NODES)


@given(st.lists(st.tuples(st.integers(0, NODES - 1), st.sampled_from((0.9, 1.2, 2.0)), st.floats(0, 1))), of_nodes)
def test_nodes_are_ranked_as_if_they_were_sorted_anew(changes, busy):
    names = [f"n{i}" for i in range(NODES)]
    pace, used = dict.fromkeys(names, 1.0), dict(zip(names, busy, strict=True))
    ranking = Ranking(names, pace, used)
    for place, new_pace, new_busy in [(0, 1.0, busy[0]), *changes]:
        pace[names[place]], used[names[place]] = new_pace, new_busy
        ranking.changed.add(names[place])
        ranks = [(pace[n] if pace[n] > UNEVEN else 1.0, used[n], i) for i, n in enumerate(names)]
        assert list(ranking) == sorted(ranks)
        assert ranking.of(["n3", "n1", "elsewhere"]) == sorted([ranks[1], ranks[3]])
        slowest = max(names, key=pace.__getitem__)
        assert ranking.slowest() == ((slowest, pace[slowest]) if pace[slowest] > UNEVEN else None)


@given(of_nodes, paces, st.sets(st.integers(0, NODES - 1)), st.sets(st.integers(0, NODES - 1)), st.booleans())
def test_the_node_that_is_found_is_the_best_of_all_that_have_room(busy, pace, warm, room, is_warm):
    """Warm first, then the slowest pace that counts, then the least busy, then the first.

    None that would be late, unless no node with an instance has a pace that is not avoided.
    """
    names = [f"n{i}" for i in range(NODES)]
    outlook, roster, left_s = world(), Roster(), 0.15
    menu = outlook.menus["f"]
    instances = [Instance(i, "f", names[i], -1, 1.0, 0.0, 0.0, is_ready=True, is_idle=True) for i in sorted(warm)]
    roster.follow(Changes(started=tuple(instances)))
    ground = Ground(cluster(NODES, vcpus=2).nodes, outlook.supply, roster)
    for name, used, speed in zip(names, busy, pace, strict=True):
        ground.pace[name] = speed
        ground.use(name, used)
    ground._arrange()
    has_choice = any(pace[i] <= UNEVEN for i in warm)
    view = SimpleNamespace(
        is_warm=lambda function, configuration, node: names.index(node) in warm,
        fits=lambda function, configuration, node, **how: names.index(node) in room,
        place=lambda *what, **how: names[min(room)] if room else None,
    )
    option = menu.means_s.index(0.1)
    ranks = []
    for i, name in enumerate(names):
        counted = pace[i] if pace[i] > UNEVEN else 1.0
        is_late = has_choice and counted > 1 and menu.means_s[option] * counted > left_s
        if i in room and not is_late and (i in warm or not is_warm):
            ranks.append((i not in warm, counted, busy[i], i, name))
    found = ground._search(view, menu, option, is_warm=is_warm, evicts=True, left_s=left_s)
    assert found == (min(ranks)[-1] if ranks else None)
    assert ground.is_full == all(used >= 1.0 for used in busy)


def test_a_request_that_joins_a_batch_needs_nothing_more_at_that_stage():
    outlook = world()
    flow, admission = outlook.flows["w"], Admission(outlook)
    requests = [Request(number, "w", 0.0, 1.0) for number in range(100)]
    admitted = next(n for n, one in enumerate(requests) if admission.admit(one, 0.0, 0.0) is not None)
    assert admitted >= 4  # until the cluster has no room by the deadline
    assert flow.need_after == (0.0, 0.0)
    assert admission.admit(requests[admitted], 0.0, 0.0, joins=True) is None


def test_a_line_knows_how_many_would_be_late():
    everywhere = Waiting()
    step = world().flows["w"].first[0]
    lines = [Line(("w", name), step, everywhere) for name in ("f", "g")]
    for line in lines:
        line.join(lines)
    for number, key in enumerate((1.0, 2.0, 3.0)):
        lines[number % 2].add(waiting(number), key)
    assert [lines[0].late_for(end) for end in (0.5, 1.5, 2.5, 9.0)] == [0, 1, 2, 3]
    assert lines[0].late_for(2.0) == 1  # who must have run by then has


def test_runs_that_are_over_are_not_waited_for():
    outlook = world()
    admission, step = Admission(outlook), outlook.flows["w"].first[0]
    runs = [Run(step.menu, "n0", 0.5, 0.0, 1.0, (1.0, 0.0), end, 9.0, step) for end in (3.0, 1.0, 2.0)]
    for run in runs:
        admission.begin(run)
    assert admission.soonest(0.5) == 1.0
    runs[1].is_open = False
    admission.end(runs[1])
    assert admission.soonest(0.5) == 2.0
    for run in (runs[0], runs[2]):
        run.is_open = False
        admission.end(run)
    assert admission.soonest(0.5) == 0.5


def test_tables_of_workflows_of_which_nothing_has_changed_stay():
    """Another price changes them; a rate does only where requests are run in batches."""
    outlook = world()
    flow, view = outlook.flows["w"], SimpleNamespace(now=0.0, profile=lambda name: outlook.menus[name]._estimate)
    worked_out = []
    tabulate = flow.first[0].tabulate
    flow.first[0].tabulate = lambda *how: (worked_out.append(how), tabulate(*how))[1]
    outlook.refresh(view)
    for menu in outlook.menus.values():
        menu.safety = 1.0  # as it is in the end where there is room
    for view.now in (1.0, 4.0, 7.0):
        worked_out.clear()
        assert outlook.refresh(view)
    assert not worked_out
    outlook.prices = outlook.prices * 2
    outlook._tabulate()
    assert len(worked_out) == 1
