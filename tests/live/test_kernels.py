"""Kernels as stages of served apps: what they answer, what is refused, device memory, and executors that die."""

import asyncio
import os
import signal

import numpy as np
import pytest
from kernel_world import BOTH, CHAINS, MANY, ONE, example, expected, needs_pocl, run, serving, two_devices  # noqa: F401

from fairlead.app import load_app
from fairlead.engine.core.device_memory import memory_use
from fairlead.errors import ConfigError
from fairlead.kaas.graphs import jacobi

SHAPES = """
    app = App("shapes")
    made = graphs.digits()
    digits = app.kernel("digits", made.graph, made.constants)
    system = graphs.jacobi(n=64, iterations=2)
    solve = app.kernel("solve", system.graph, system.constants)
    scale = app.kernel("scale", graphs.scaling().graph)

    @app.function
    def image(number): return np.full((8, 8), number, np.float32)

    @app.function
    def label(shares): return int(np.argmax(shares))

    @app.function
    def total(found): return float(np.sum(found))

    @app.function
    def images(count): return [np.full((8, 8), i, np.float32) for i in range(count)]

    @app.function
    def first(x): return np.asarray(x, np.float32)

    app.workflow("chain", image >> digits >> label)
    app.workflow("fork", image >> fork(digits, digits) >> total)
    app.workflow("each", images >> each(digits >> label))
    app.workflow("each-part", scale >> each(total))
    app.workflow("arm", image >> switch(lambda x: "yes" if x[0][0] > 1 else "no", {"yes": digits, "no": None}))
    app.workflow("scale", scale)
    app.workflow("solve", solve)
"""


@pytest.mark.parametrize("devices", ONE, ids=lambda found: found[0])
def test_a_kernel_is_a_stage_like_a_function(tmp_path, devices):
    async def test():
        async with serving(tmp_path, SHAPES, devices=devices) as app:
            plain = load_app(tmp_path / "app0.py").workflows
            assert await app.answer("chain", 3) == plain["chain"](3)
            assert await app.answer("fork", 3) == pytest.approx(plain["fork"](3), abs=1e-5)
            assert await app.answer("each", 5) == plain["each"](5)
            line = np.arange(64, dtype=np.float32)
            assert await app.answer("each-part", line) == list(2 * line)
            np.testing.assert_allclose(await app.answer("arm", 3), plain["arm"](3), atol=1e-5)
            assert np.array_equal(await app.answer("arm", 0), np.zeros((8, 8)))
            assert np.array_equal(await app.answer("scale", line.tolist()), 2 * line)
            inputs = dict(jacobi(n=64, iterations=2).inputs)
            found, wanted = await app.answer("solve", inputs), plain["solve"](inputs)
            np.testing.assert_allclose(found, wanted, atol=1e-5)

    run(test())


def test_an_input_of_another_type_or_shape_fails_its_request_with_the_buffer(tmp_path):
    async def test():
        async with serving(tmp_path, SHAPES) as app:
            for value, found in (
                (np.zeros(65, np.float32), "Input 'x' must be float32 [64]; got float32 [65]."),
                (np.zeros(64, np.float64), "Input 'x' must be float32 [64]; got float64 [64]."),
                ([[1.0] * 64], "Input 'x' must be float32 [64]; got values of shape [1, 64]."),
                (["a"] * 64, "Input 'x' must be float32 [64]; got values of type str."),
                ([*[1.0] * 63, True], "Input 'x' must be float32 [64]; got values of type bool."),
                ([[1.0], [1.0, 2.0]], "Input 'x' must be float32 [64]; got a value of type list that is no array"),
                ({"y": 1}, "scaling-64 takes a mapping with x; missing: x; unknown: y."),
            ):
                ending = await app.call("scale", value)
                assert ending.outcome == "failed"
                assert found in ending.reason
            ending = await app.call("solve", np.zeros(64, np.float32))
            assert "jacobi-64 takes a mapping with b, x; got a value of type ndarray." in ending.reason
            assert np.array_equal(await app.answer("scale", [1] * 64), np.full(64, 2.0))

    run(test())


@pytest.mark.parametrize("policy", ["mqfq-sticky", "fairlead"])
@pytest.mark.slow
@needs_pocl
def test_every_answer_is_right_on_two_devices_under_a_small_cap(tmp_path, policy):
    async def test():
        async with serving(tmp_path, MANY, devices=BOTH, memory=4 << 20, policy=policy) as app:
            rng = np.random.default_rng(0)

            async def client():
                for seed in rng.integers(CHAINS, size=8).tolist():
                    np.testing.assert_allclose(await app.answer(f"w{seed}", example(seed)), expected(seed), atol=1e-3)

            await asyncio.gather(*(client() for _ in range(4)))
            devices = await app.devices()
            assert sum(one.runs for one in devices) == 32
            assert all(one.peak_bytes <= one.memory_bytes for one in devices)

    run(test())


@needs_pocl
def test_the_controller_believes_what_the_executors_did(tmp_path):
    """Buffers of whole megabytes, so that both count the same."""
    text = f"""
        app = App("model", policy="kaas-affinity")
        for seed in range({CHAINS}):
            made = graphs.gemm_chain(size=512, depth=1, seed=seed)
            graph = made.graph
            app.workflow(f"w{{seed}}", app.kernel(f"k{{seed}}", thin(made), made.constants))
    """
    thin = """
        import msgspec
        from fairlead.kaas import Kernel, Argument, Literal

        def thin(made):
            # one scale kernel that reads the constant: it is quick, whatever the size
            scale = graphs.scaling(n=512 * 512).graph
            kernel = scale.kernels[0]
            first = msgspec.structs.replace(
                kernel, arguments=(Argument(buffer="w0", access="read"), Argument(buffer="y", access="write"))
            )
            second = msgspec.structs.replace(
                kernel, arguments=(Argument(buffer="x", access="read"), Argument(buffer="y", access="write"))
            )
            return msgspec.structs.replace(made.graph, sources=scale.sources, kernels=(first, second))
    """

    async def test():
        async with serving(tmp_path, thin + text, devices=BOTH, memory=3 << 20) as app:
            x = np.ones((512, 512), np.float32)
            rng = np.random.default_rng(1)
            for seed in rng.integers(CHAINS, size=16).tolist():
                assert np.array_equal(await app.answer(f"w{seed}", x), 2 * x)
            devices = await app.devices()
            nodes = app.controller("model").nodes.values()
            for use, one in zip(memory_use(nodes), devices, strict=True):
                found = (one.hits, one.compulsory_misses, one.capacity_misses, one.evictions, one.loaded_bytes >> 20)
                model = (use.hits, use.compulsory_misses, use.capacity_misses, use.evictions, int(use.loaded_mb))
                assert found == model
            assert sum(one.evictions for one in devices) > 0
            assert [counts.corrections for node in nodes for counts in node.memory_counts] == [0, 0]

    run(test())


@pytest.mark.parametrize(
    "devices",
    [("numpy",), pytest.param(("opencl:0",), marks=[needs_pocl, pytest.mark.slow])],
    ids=lambda found: found[0],
)
def test_an_executor_that_is_killed_again_and_again_loses_nothing(tmp_path, devices):
    async def test():
        async with serving(tmp_path, MANY, devices=devices) as app:
            for seed in range(CHAINS):
                await app.answer(f"w{seed}", example(seed))

            kills, answered = 3, 0
            restarted = lambda: app.status()[0].restarts  # noqa: E731

            async def client(seed):
                nonlocal answered
                while restarted() < kills:
                    np.testing.assert_allclose(await app.answer(f"w{seed}", example(seed)), expected(seed), atol=1e-3)
                    answered += 1

            clients = asyncio.gather(*(client(seed) for seed in range(CHAINS)))
            for number in range(kills):
                before = answered
                while answered < before + 4:  # its process is at work
                    await asyncio.sleep(0.01)
                os.kill(app.executor(), signal.SIGKILL)
                while restarted() == number:
                    await asyncio.sleep(0.01)
            await clients
            believed = sum(c.corrections for n in app.controller("many").nodes.values() for c in n.memory_counts)
            assert believed >= kills  # what was believed to lie on the device was corrected each time

    run(test())


ENDLESS = """
    import msgspec
    from fairlead.kaas import Source

    app = App("endless")
    good = graphs.scaling()
    name = good.graph.kernels[0].source
    def with_source(text):
        return msgspec.structs.replace(good.graph, sources={name: Source(opencl=text)})
    head = "__kernel void scale(int n, float f, __global const float *x, __global float *y) {"
    turn = app.kernel("turn", with_source(head + "volatile int i = 0; while (i < 1 || n > 0) { i = 1; } }"),
                      retries=0, run_limit_s=1)
    broken = app.kernel("broken", with_source(head + "this is no C }"), retries=0)
    fine = app.kernel("fine", good.graph)
    app.workflow("turn", turn)
    app.workflow("broken", broken)
    app.workflow("fine", fine)
"""


@needs_pocl
def test_an_endless_kernel_and_one_that_does_not_compile_fail_alone(tmp_path):
    async def test():
        async with serving(tmp_path, ENDLESS, devices=("opencl:0",)) as app:
            line = np.arange(64, dtype=np.float32)
            assert np.array_equal(await app.answer("fine", line), 2 * line)
            endless = asyncio.ensure_future(app.call("turn", line))
            ending = await endless
            assert ending.outcome == "failed"
            assert "did not run within 1 s" in ending.reason
            assert np.array_equal(await app.answer("fine", line), 2 * line)
            app.host.submit("broken", b"\x90", done=lambda ending: None)
            while not any("does not compile" in line for line in app.log):
                await asyncio.sleep(0.01)
            assert np.array_equal(await app.answer("fine", line), 2 * line)
            (one,) = await app.devices()
            assert one.restarts == 1

    run(test())


def test_two_apps_on_one_executor_share_nothing(tmp_path):
    other = MANY.replace('App("many")', 'App("other")').replace("seed=seed)", "seed=seed + 10)")
    other = other.replace('app.workflow(f"w', 'app.workflow(f"o')

    async def test():
        async with serving(tmp_path, MANY, other) as app:
            for seed in range(2):
                await app.answer(f"w{seed}", example(seed))
                found = await app.answer(f"o{seed}", example(seed + 10))
                np.testing.assert_allclose(found, expected(seed + 10), atol=1e-3)
            (one,) = await app.devices()
            assert {resident.app for resident in one.residents} == {"many", "other"}
            assert set(one.device_s) == {"many", "other"}
            assert (one.hits, one.compulsory_misses) == (0, 4 * 16)  # equal names, and nothing was found of another's
            await app.host.remove("other")
            np.testing.assert_allclose(await app.answer("w0", example(0)), expected(0), atol=1e-3)

    run(test())


def test_a_device_that_is_not_there_is_refused_at_the_start(tmp_path):
    async def test():
        with pytest.raises(ConfigError, match=r"There is no device opencl:99|needs pyopencl"):
            async with serving(tmp_path, SHAPES, devices=("opencl:99",)):
                pass

    run(test())
