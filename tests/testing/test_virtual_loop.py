"""The virtual loop: its clock, its order, what it says of programs that are stuck, and lives that end."""

import asyncio
from time import perf_counter

import pytest

from fairlead.testing.virtual.loop import BEGIN_S, Life, LifeEndedError, StuckError, VirtualLoop, run


def test_sleeping_takes_virtual_time_only():
    async def main():
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = perf_counter()
    assert run(main()) == BEGIN_S + 3600
    assert perf_counter() - began < 5


def test_timers_fire_in_the_order_of_their_instants_then_as_they_were_set():
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        for name, delay_s in (("c", 2.0), ("a", 1.0), ("b", 1.0), ("d", 2.0)):
            loop.call_later(delay_s, seen.append, name)
        loop.call_later(1.5, seen.append, "never").cancel()
        await asyncio.sleep(3)

    run(main())
    assert seen == ["a", "b", "c", "d"]


def test_threads_are_not_used():
    async def main():
        return await asyncio.gather(asyncio.to_thread(lambda: 1), asyncio.to_thread(lambda: 2))

    assert run(main()) == [1, 2]


def test_an_executors_result_may_take_time():
    async def main():
        return await asyncio.to_thread(lambda: 7), asyncio.get_running_loop().time()

    assert run(main(), executor_delay_s=lambda: 0.25) == (7, BEGIN_S + 0.25)


def test_what_an_executors_work_raises_is_raised():
    async def main():
        await asyncio.to_thread(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_timeouts_work():
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        return asyncio.get_running_loop().time()

    assert run(main()) == BEGIN_S + 5


def test_waiting_for_what_can_never_come_is_an_error_that_names_the_task():
    async def never():
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match=r"Nothing can happen any more at 1000\.0+\. 1 tasks wait:[^\n]*\n.*never"):
        run(never())


def test_a_program_that_does_not_end_in_time_is_stuck():
    async def for_ever():
        while True:
            await asyncio.sleep(1)

    with pytest.raises(StuckError, match="It has not ended by 1010"):
        run(for_ever(), limit_s=10)


def test_a_program_that_lets_no_time_go_by_is_stuck():
    async def spin():
        asyncio.get_running_loop().most_steps = 1000
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="Time stands still"):
        run(spin())


def test_what_a_callback_raises_is_raised_at_the_end():
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="1 callbacks failed") as raised:
        run(main())
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_tasks_that_are_left_are_cancelled():
    ended = []

    async def left():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("left")

    async def main():
        main.task = asyncio.create_task(left())
        await asyncio.sleep(1)

    run(main())
    assert ended == ["left"]


async def _two_steps(seen):
    seen.append(1)
    await asyncio.sleep(1)
    seen.append(2)
    await asyncio.sleep(1)
    seen.append(3)


@pytest.mark.parametrize(("dies_after", "expected"), [(0, []), (1, [1]), (None, [1, 2, 3])])
def test_a_life_ends_before_any_step(dies_after, expected):
    seen = []

    async def main():
        life = Life(asyncio.get_running_loop(), "it", dies_after)
        life.start(_two_steps(seen))
        await asyncio.sleep(10)

    run(main())
    assert seen == expected


def test_what_a_life_scheduled_ends_with_it_and_the_rest_goes_on():
    seen = []

    async def inside():
        asyncio.get_running_loop().call_later(2, seen.append, "inside")
        child = asyncio.create_task(_two_steps(seen))
        await child

    async def main():
        loop = asyncio.get_running_loop()
        life = Life(loop, "it")
        life.start(inside())
        loop.call_later(2, seen.append, "outside")
        await asyncio.sleep(0.5)
        life.end()
        await asyncio.sleep(10)

    run(main())
    assert seen == [1, "outside"]


def test_code_that_runs_on_the_way_out_has_no_effect():
    seen = []

    async def stubborn():
        try:
            await asyncio.sleep(100)
        finally:
            asyncio.get_running_loop().call_later(1, seen.append, "late")
            stubborn.task = asyncio.create_task(_two_steps(seen))
            await asyncio.to_thread(seen.append, "thread")
            await asyncio.sleep(1)

    async def main():
        life = Life(asyncio.get_running_loop(), "it")
        life.start(stubborn())
        await asyncio.sleep(1)
        life.end()
        await asyncio.sleep(10)

    run(main())
    assert seen == []


def test_whoever_asks_a_life_that_ends_is_told():
    async def main():
        life = Life(asyncio.get_running_loop(), "the gateway")
        asked = asyncio.create_task(life.ask(asyncio.sleep(100, "answer")))
        quick = await life.ask(asyncio.sleep(1, "answer"))
        life.end()
        with pytest.raises(LifeEndedError, match="the gateway has ended"):
            await asked
        with pytest.raises(LifeEndedError):
            await life.ask(asyncio.sleep(1))
        return quick

    assert run(main()) == "answer"


def test_whoever_leaves_ends_what_was_asked():
    seen = []

    async def inside():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main():
        life = Life(asyncio.get_running_loop(), "it")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(life.ask(inside()), 1)
        await asyncio.sleep(1)

    run(main())
    assert seen == ["cancelled"]


def test_many_cancelled_timers_do_not_pile_up():
    loop = VirtualLoop()
    for _ in range(10_000):
        loop.call_later(100, print).cancel()
    assert len(loop._timers) < 5_000
    loop.close()
