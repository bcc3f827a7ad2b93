"""What `fairlead` keeps so that decisions are quick is what it would find by looking: lines, tables and places."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.core.site import make_site
from fairlead.model import SLO, Invocation, Workflow
from fairlead.policy.fairlead.ground import Ground
from fairlead.policy.fairlead.lines import Line
from fairlead.policy.fairlead.menu import Menu, Supply
from fairlead.policy.fairlead.outlook import Outlook
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
    everywhere = [0]
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
        assert (line.size, line.waiting, everywhere[0]) == (len(model),) * 3
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
    step._laid_out_for = None
    outlook._tabulate()
    assert np.array_equal(step.cost, kept)


def test_what_fits_nowhere_is_asked_for_once_per_decision():
    outlook = world()
    menu = outlook.menus["f"]
    ground, asked = Ground(cluster(2, vcpus=2).nodes, outlook.supply), []
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
    menu, ground = outlook.menus["f"], Ground(cluster(2, vcpus=2).nodes, outlook.supply)
    view = SimpleNamespace(place=lambda *what, **how: None)
    ground.look_again()
    for option in range(len(menu)):
        ground.find(view, menu, option, is_warm=False, evicts=True, left_s=1.0)
        is_last = len({menu.footprint[one] for one in range(option + 1)}) == len(menu.blocked)
        assert ground.is_closed(menu, is_warm=True, evicts=True) == is_last
    ground.look_again()
    assert not ground.is_closed(menu, is_warm=True, evicts=True)
