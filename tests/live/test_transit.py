"""Values live as long as an instance may read them, and no longer."""

from fairlead.app import App, fork
from fairlead.app.current import About
from fairlead.engine.core.effects import RunBatch
from fairlead.engine.live.routes import Route
from fairlead.engine.live.transit import OpenRequest, Origin, Transit
from fairlead.engine.live.values import Result
from fairlead.model import Configuration, Invocation, Request

INPUT = "1-0"  # kept in the store


class Kept:
    """A back end as far as values go: what was released, in order."""

    def __init__(self):
        self.released = []

    def put(self, data):
        return data

    def release(self, value):
        if value:
            self.released.append(value)

    def size_bytes(self, value):
        return 1 << 20


def world():
    app = App("test")

    @app.function
    def left(x):
        return x

    @app.function
    def right(x):
        return x

    app.workflow("w", fork(left, right))
    backend = Kept()
    transit = Transit(backend)
    state = OpenRequest(
        Request(0, "w", 0.0), Route(app.manifest().workflows[0]), INPUT, 1, lambda ending: None, Origin("w-1-0")
    )
    transit.open[0] = state
    return transit, state, backend


def run(transit, batch, stage, started=0.0):
    invocation = Invocation(batch, 0, "w", stage, stage, 0.0, 1.0)
    effect = RunBatch(started, batch, 7, stage, (invocation,), Configuration(), "n", -1, 0.0)
    return transit.begin(effect, started, 0.0, started, 0.5)


def end(transit, state, answer=None):
    del transit.open[0]
    transit.leave(state, answer)


def test_a_batch_gets_the_inputs_of_open_requests():
    transit, _, _ = world()
    assert run(transit, 1, "left") == (["w/left"], [INPUT], [About("w-1-0", None, 1)])


def test_what_a_request_held_is_free_at_its_end_except_its_answer():
    transit, state, backend = world()
    for batch, stage, value in ((1, "left", "2-0"), (2, "right", "3-0")):
        run(transit, batch, stage)
        _, event = transit.finish(batch, [Result(True, value)], 0.25)
        assert (event.work_s, event.outcomes[0].ok) == (0.25, True)
    answer = state.answer()
    assert answer == ["2-0", "3-0"]
    end(transit, state, answer)
    assert backend.released == [INPUT]


def test_a_request_that_ends_early_keeps_its_values_until_its_instance_is_done():
    transit, state, backend = world()
    run(transit, 1, "left")
    end(transit, state)
    assert backend.released == []
    transit.finish(1, [Result(True, "2-0")], 1.0)
    assert backend.released == [INPUT, "2-0"]


def test_a_batch_that_began_after_the_end_reads_nothing_and_teaches_nothing():
    transit, state, backend = world()
    run(transit, 1, "left")
    end(transit, state)
    assert run(transit, 2, "right") == ([], [], [])
    _, event = transit.finish(2, [], 9.0)
    assert (event.work_s, event.outcomes[0].ok) == (0.5, True)
    assert backend.released == []  # the first batch still reads
    transit.forget(1)
    assert backend.released == [INPUT]


def test_the_wrong_number_of_results_fails_them_all():
    transit, _, _ = world()
    run(transit, 1, "left")
    _, event = transit.finish(1, [], 1.0)
    assert event.outcomes[0].error == "it gave 0 results for 1 invocations"


def test_a_result_that_nobody_waits_for_is_freed():
    transit, _, backend = world()
    assert transit.finish(99, [Result(True, "5-0")], 1.0) is None
    assert backend.released == ["5-0"]
