"""Room for one more instance, beside those that are there: what a policy asks before a Warm."""

from fairlead import simulate
from fairlead.model import Configuration
from fairlead.policy import Policy, Start, Warm
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario

GPU = Configuration(vcpus=1, vgpus=1)


def test_an_idle_instance_is_room_for_a_start_and_none_for_one_more():
    seen = []

    class Looks(Policy):
        def decide(self, view):
            if (invocation := view.oldest()) is not None:
                if view.now > 0:
                    for evicts in (True, False):
                        seen.append(
                            (
                                view.fits("f", GPU, "n0", evicts=evicts),
                                view.fits("f", GPU, "n0", evicts=evicts, is_fresh=True),
                                view.place("f", GPU, evicts=evicts) is not None,
                                view.place("f", GPU, "fresh", evicts=evicts) is not None,
                            )
                        )
                yield Start((invocation,), GPU, "n0")

    function = declared(Table((Row(vcpus=1, vgpus=1, seconds=1.0),)), idle_holds="slice", cold_start_s=1.0)
    where = scenario({"f": function}, arrivals=[0.0, 10.0], on=cluster(vgpus=1))
    recording = simulate(where, Looks())
    assert not recording.refusals
    assert seen == [(True, True, True, True), (True, False, True, False)]


def test_an_instance_that_starts_is_no_room_for_one_more():
    seen = []

    class Warms(Policy):
        def decide(self, view):
            if view.now == 0:
                yield Warm("f", GPU, "n0")
                seen.append((view.fits("f", GPU, "n0"), view.fits("f", GPU, "n0", is_fresh=True)))

    function = declared(Table((Row(vcpus=1, vgpus=1, seconds=1.0),)), cold_start_s=5.0)
    simulate(scenario({"f": function}, arrivals=[0.0], on=cluster(vgpus=1), duration_s=1.0), Warms())
    assert seen == [(True, False)]
