"""Executors: right answers on every device, and what is kept in its memory."""

import asyncio

import numpy as np
import pytest
from kaas_devices import DEVICES, needs_pocl, run
from msgspec.structs import replace
from sklearn.datasets import load_digits

from fairlead.kaas import (
    BuildError,
    DeviceLostError,
    DeviceMemoryError,
    LaunchError,
    Request,
    RequestError,
    Source,
    ValueMissingError,
)
from fairlead.kaas.graphs import SHIPPED, digits, gemm_chain, jacobi, scaling
from fairlead.kaas.reference import REFERENCE
from fairlead.kaas.request import inputs_of


def expected(example):
    """What a graph's reference kernels make of its inputs, without an executor."""
    held = {b.name: np.zeros(b.size // 4, np.float32) for b in example.graph.buffers}
    for name, value in (*example.constants.items(), *example.inputs.items()):
        held[name][:] = np.ravel(value)
    for _ in range(example.graph.iterations):
        for kernel in example.graph.kernels:
            sizes = [literal.value for literal in kernel.literals]
            REFERENCE[kernel.reference].run(*sizes, *(held[argument.buffer] for argument in kernel.arguments))
    return {b.name: held[b.name].reshape(b.shape) for b in example.graph.buffers if b.is_returned}


def with_kernel(graph, **changes):
    """A graph of one kernel, changed."""
    return replace(graph, kernels=(replace(graph.kernels[0], **changes),))


def ask(example, tenant="t", **more):
    return Request(tenant=tenant, graph=example.graph, inputs=example.inputs, **more)


@pytest.mark.parametrize("device", DEVICES)
def test_every_shipped_graph_gives_what_numpy_gives(desk, device):
    async def go():
        async with desk.executor(device) as executor:
            for make in SHIPPED.values():
                example = make()
                desk.put(example)
                answer = await executor.run(ask(example, limit_s=120))
                for name, value in expected(example).items():
                    np.testing.assert_allclose(answer.array(name), value, rtol=1e-4, atol=1e-5)

    run(go())


def test_shipped_network_tells_digits_apart(desk):
    images, labels = load_digits(return_X_y=True)

    async def go():
        network = digits()
        desk.put(network)
        async with desk.executor() as executor:
            requests = [
                Request(tenant="t", graph=network.graph, inputs={"x": image.astype(np.float32)})
                for image in images[-100:]
            ]
            answers = await asyncio.gather(*map(executor.run, requests))
        return np.mean([a.array("y").argmax() == label for a, label in zip(answers, labels[-100:], strict=True)])

    assert run(go()) > 0.85


def test_shipped_solver_solves(desk):
    async def go():
        solver = jacobi(n=64)
        desk.put(solver)
        async with desk.executor() as executor:
            return solver, (await executor.run(ask(solver))).array("x")

    solver, x = run(go())
    np.testing.assert_allclose(solver.constants["a"] @ x, solver.inputs["b"], atol=1e-4)


@pytest.mark.parametrize("device", DEVICES[:2])
def test_second_request_finds_its_constants_and_its_code(desk, device):
    async def go():
        chain = gemm_chain(size=16, depth=3)
        desk.put(chain)
        async with desk.executor(device) as executor:
            return [await executor.run(ask(chain, limit_s=120)) for _ in range(2)]

    first, second = run(go())
    assert (first.counts.hits, first.counts.compulsory_misses, first.counts.loaded_bytes) == (0, 3, 3 * 1024)
    assert (second.counts.hits, second.counts.compulsory_misses, second.counts.compiled) == (3, 0, 0)
    assert (first.is_cold, second.is_cold) == (True, False)
    assert second.counts.input_bytes == second.counts.output_bytes == 1024


@pytest.mark.parametrize("device", DEVICES[:2])
def test_models_that_do_not_fit_together_take_turns_and_stay_right(desk, device):
    """Each of the three needs 5 x 1024 bytes, of which 3 x 1024 are constants; the device has 8 x 1024."""

    async def go():
        chains = [gemm_chain(size=16, depth=3, seed=seed) for seed in range(3)]
        for tenant, chain in enumerate(chains):
            desk.put(chain, f"t{tenant}")
        async with desk.executor(device, memory_bytes=8 * 1024) as executor:
            for _ in range(3):
                requests = [ask(chain, f"t{i}", limit_s=120) for i, chain in enumerate(chains)]
                for chain, answer in zip(chains, await asyncio.gather(*map(executor.run, requests)), strict=True):
                    np.testing.assert_allclose(answer.array("y"), expected(chain)["y"], rtol=1e-4, atol=1e-5)
            return await executor.status()

    status = run(go())
    assert status.peak_bytes <= status.memory_bytes == 8 * 1024
    assert status.counts.evictions > 0
    assert status.counts.capacity_misses > 0
    assert status.pinned_bytes == 0
    assert status.answered == 9
    assert sorted(status.device_s) == ["t0", "t1", "t2"]


@pytest.mark.parametrize("device", DEVICES[:2])
def test_tenants_with_one_key_have_their_own_values(desk, device):
    async def go():
        chains = {f"t{seed}": gemm_chain(size=16, depth=1, seed=seed) for seed in range(2)}
        async with desk.executor(device) as executor:
            for tenant, chain in chains.items():
                desk.put(chain, tenant)
                answer = await executor.run(ask(chain, tenant, limit_s=120))
                np.testing.assert_allclose(answer.array("y"), expected(chain)["y"], rtol=1e-4, atol=1e-5)
            with pytest.raises(ValueMissingError, match="has no value"):
                await executor.run(ask(chains["t0"], "t2"))

    run(go())


@pytest.mark.parametrize("device", DEVICES[:2])
def test_memory_of_an_earlier_tenant_reads_as_zeros(desk, device):
    """The second tenant's kernel claims to write its output, and writes nothing."""

    async def go():
        secret, peek = scaling(n=4096, factor=7.0), scaling(n=4096)
        (size, factor) = peek.graph.kernels[0].literals
        graph = with_kernel(peek.graph, literals=(replace(size, value=0), factor))
        async with desk.executor(device) as executor:
            for _ in range(20):
                answer = await executor.run(Request(tenant="one", graph=secret.graph, inputs=secret.inputs))
                assert answer.array("y")[1] == 7
                seen = await executor.run(Request(tenant="two", graph=graph, inputs=peek.inputs))
                assert not seen.array("y").any()

    run(go())


def test_request_can_name_another_value_for_a_constant(desk):
    async def go():
        chain = gemm_chain(size=16, depth=1)
        desk.values.put("t", "identity", np.eye(16, dtype=np.float32))
        async with desk.executor() as executor:
            answer = await executor.run(ask(chain, keys={"w0": "identity"}))
            np.testing.assert_array_equal(answer.array("y"), chain.inputs["x"])
            with pytest.raises(RequestError, match="keys must name constants"):
                await executor.run(ask(chain, keys={"x": "identity"}))
            with pytest.raises(RequestError, match="keys must have 1 to 256 characters each"):
                await executor.run(ask(chain, keys={"w0": "k" * 257}))

    run(go())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing: x"),
        ({"x": np.zeros(64, np.float32), "z": b""}, "unknown: z"),
        ({"x": np.zeros(63, np.float32)}, "must have 256 bytes; got 252"),
        ({"x": np.zeros(64)}, "must be float32; got float64"),
        ({"x": b"abc"}, "must have 256 bytes; got 3"),
    ],
    ids=["missing", "unknown", "too-short", "wrong-type", "too-few-bytes"],
)
def test_inputs_that_do_not_fit_the_graph_are_refused(desk, inputs, message):
    async def go():
        async with desk.executor() as executor:
            await executor.run(Request(tenant="t", graph=scaling().graph, inputs=inputs))

    with pytest.raises(RequestError, match=message):
        run(go())


@pytest.mark.parametrize("kind", ["input", "output"])
def test_more_bytes_than_a_message_holds_are_refused(kind):
    """9 GiB; a constant may be as large."""
    graph = scaling().graph
    large = tuple(replace(b, shape=(3, 3 << 28)) if b.kind == kind else b for b in graph.buffers)
    request = Request(tenant="t", graph=replace(graph, buffers=large), inputs={"x": np.zeros(64, np.float32)})
    with pytest.raises(RequestError, match="at most 4294967296 are possible"):
        inputs_of(request)


def test_name_that_no_message_can_hold_is_refused():
    with pytest.raises(ValueError, match="surrogates not allowed"):
        Request(tenant="\ud800", graph=scaling().graph)


def test_what_is_wrong_with_one_request_leaves_the_process_as_it_was(desk):
    async def go():
        small, chain = scaling(), gemm_chain(size=16, depth=1)
        desk.values.put("short", "gemm-chain-16x1/w0", b"abcd")
        silent = with_kernel(small.graph, reference=None)
        size, factor = small.graph.kernels[0].literals
        crooked = with_kernel(small.graph, literals=(replace(size, value=-5), factor))
        async with desk.executor(memory_bytes=4096) as executor:
            process = executor.process_id
            with pytest.raises(DeviceMemoryError, match="the cap is 4096"):
                await executor.run(ask(scaling(n=1024)))
            with pytest.raises(ValueMissingError, match="has 4 bytes"):
                await executor.run(ask(chain, "short"))
            with pytest.raises(BuildError, match="no reference"):
                await executor.run(Request(tenant="t", graph=silent, inputs=small.inputs))
            with pytest.raises(LaunchError, match="must not be negative"):
                await executor.run(Request(tenant="t", graph=crooked, inputs=small.inputs))
            answer = await executor.run(ask(small))
            assert answer.array("y")[3] == 6
            assert executor.process_id == process
            assert (await executor.status()).used_bytes == 0

    run(go())


@needs_pocl
def test_source_that_does_not_compile_is_an_error_with_the_compilers_words(desk):
    def spoil(graph, code, name="scale"):
        return replace(with_kernel(graph, name=name), sources={"kernels": Source(opencl=code)})

    async def go():
        small = scaling()
        async with desk.executor("opencl:0") as executor:
            process = executor.process_id
            for graph, message in (
                (spoil(small.graph, "__kernel void scale( {"), "does not compile"),
                (spoil(small.graph, small.graph.sources["kernels"].opencl, "scales"), "no kernel 'scales'"),
                (spoil(small.graph, "__kernel void scale(__global float *y) {}"), "takes 1 parameters"),
            ):
                with pytest.raises(BuildError, match=message):
                    await executor.run(Request(tenant="t", graph=graph, inputs=small.inputs))
            assert (await executor.run(ask(small, limit_s=120))).array("y")[3] == 6
            assert executor.process_id == process

    run(go())


@pytest.mark.parametrize(
    ("device", "message"),
    [("gpu", "device must be numpy"), pytest.param("opencl:99", "There is no device opencl:99", marks=needs_pocl)],
)
def test_device_that_is_not_there_is_said_at_the_start(desk, device, message):
    with pytest.raises(DeviceLostError, match=message):
        run(desk.executor(device).start())


def test_tenant_can_be_forgotten(desk):
    async def go():
        chain = gemm_chain(size=16, depth=1)
        desk.put(chain)
        async with desk.executor() as executor:
            await executor.run(ask(chain))
            before = await executor.status()
            await executor.forget("t")
            return before, await executor.status()

    before, after = run(go())
    assert [(r.tenant, r.key, r.size) for r in before.residents] == [("t", "gemm-chain-16x1/w0", 1024)]
    assert after.residents == ()
    assert after.used_bytes == 0
