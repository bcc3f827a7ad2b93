"""Time for the reply: measured by the runtime, taken off the deadlines that the controller is given; batches first."""

from dataclasses import dataclass
from math import inf
from time import sleep

import pytest
from runtimes import run, served, until

from fairlead.engine.core.replytime import ReplyTime
from fairlead.engine.live.values import encode
from fairlead.model import Request
from fairlead.policy.base import Policy
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.policy.fifo import Fifo


@dataclass
class Careful(Policy):
    """Keeps half of a tenth of what requests are given."""

    def reply_s(self, given_s: float) -> float:
        return 0.05 * given_s


def kept_s(reply: ReplyTime, given_s: float) -> float:
    request = Request(0, "w", 3.0, 3.0 + given_s)
    return request.deadline - reply.before(request).deadline


def following(dispatcher: Policy, *seconds: float) -> ReplyTime:
    reply = ReplyTime(dispatcher)
    for one in seconds:
        reply.observe(one)
    return reply


class TestReplyTime:
    def test_nothing_is_kept_before_the_first_answer_nor_without_a_deadline(self):
        assert kept_s(ReplyTime(Fifo()), 1.0) == 0.0
        request = Request(0, "w", 3.0, inf)
        assert following(Fifo(), 0.1).before(request) is request

    def test_a_steady_time_is_kept_whole(self):
        assert kept_s(following(Fifo(), *[0.004] * 300), 1.0) == pytest.approx(0.004, rel=1e-3)

    def test_more_is_kept_where_the_time_varies(self):
        steady, varying = following(Fifo(), *[0.004] * 300), following(Fifo(), *[0.002, 0.006] * 150)
        assert kept_s(varying, 1.0) == pytest.approx(kept_s(steady, 1.0) + 0.002, rel=0.1)

    def test_one_long_pause_takes_no_more_than_a_tenth_of_what_is_given(self):
        assert kept_s(following(Fifo(), 10.0), 0.05) == pytest.approx(0.005)

    @pytest.mark.parametrize(("reply_s", "kept"), [(0.08, 0.03), (0.04, 0.0)], ids=["more", "less"])
    def test_what_the_dispatcher_keeps_itself_is_not_kept_twice(self, reply_s, kept):
        assert kept_s(following(Careful(), *[reply_s] * 300), 1.0) == pytest.approx(kept, abs=1e-4)

    def test_the_default_dispatcher_keeps_two_milliseconds_or_three_percent(self):
        assert Fairlead().reply_s(0.05) == pytest.approx(0.0015)
        assert Fairlead().reply_s(1.0) == 0.002


APP = """
    import time

    @app.function(batch=(1,), max_replicas=1)
    def wait(seconds):
        time.sleep(seconds)
        return seconds

    app.workflow("main", wait)
"""


def test_the_controller_is_given_an_earlier_deadline_and_the_client_keeps_its_own(tmp_path):
    async def test():
        async with served(tmp_path, APP.replace("batch=(1,), max_replicas=1", "")) as app:
            for _ in range(300):
                app.runtime._reply_time.observe(0.02)
            number, future = app.begin("main", 0.3, deadline_s=30.0)
            await until(lambda: number in app.runtime.controller.requests)
            told = app.runtime.controller.requests[number].request
            assert told.deadline - told.arrival == pytest.approx(30.0 - 0.02, abs=1e-3)
            ending = await future
            assert ending.deadline - ending.arrival == pytest.approx(30.0)

    run(test)


def test_how_long_an_answer_takes_to_leave_is_followed(tmp_path):
    async def test():
        async with served(tmp_path, APP.replace("batch=(1,), max_replicas=1", "")) as app:
            before = app.runtime._reply_time.seconds
            _, future = app.begin("main", 0.0)
            future.add_done_callback(lambda _: sleep(0.2))  # as a gateway that is slow to write it
            await future
            await until(lambda: app.runtime._reply_time.seconds > before + 0.02)

    run(test)


def test_the_next_batch_is_sent_before_answers_and_its_time_counts_from_the_decision(tmp_path):
    async def test():
        async with served(tmp_path, "    app.node('one', vcpus=1)\n" + APP.replace(", max_replicas=1", "")) as app:
            runtime, order, times = app.runtime, [], []
            send, predict, count = runtime._instances.run, runtime.tally.predict_s, runtime.tally.batch

            def sent(*what):
                order.append("sent")
                send(*what)

            def slow(*what):
                sleep(0.1)  # the loop is busy between the decision and the batch
                return predict(*what)

            def counted(batch, work_s, transfer_s):
                times.append(work_s)
                count(batch, work_s, transfer_s)

            runtime._instances.run, runtime.tally.predict_s, runtime.tally.batch = sent, slow, counted
            how = {"deadline_s": None, "budget_usd": None, "done": lambda _: order.append("answered")}
            for _ in range(2):
                runtime.submit("main", encode(0.05), **how)
            await until(lambda: len(order) == 4)
            assert order == ["sent", "sent", "answered", "answered"]
            assert min(times) >= 0.15

    run(test)
