"""Shares of GPUs: who may have what, and that nothing is promised twice whatever starts, ends, or is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.live.gpus import Gpu, GpuBook, NoShareError, Slice
from fairlead.engine.live.gpus.book import clothed, device_of
from fairlead.model.mig import MIG_SIZES, mig_layout

GIB = 2**30


def mig(*sizes, index=0):
    slices = tuple(Slice(f"MIG-{index}-{n}", size, size * 5 * GIB) for n, size in enumerate(sizes))
    return Gpu(index=index, uuid=f"GPU-{index}", name="A100", memory_bytes=40 * GIB, slices=slices)


def plain(index=1, **others):
    return Gpu(index=index, uuid=f"GPU-{index}", name="L40S", memory_bytes=14 * GIB, **others)


def book(*gpus, is_mps=True, vgpus=7.0):
    return GpuBook(gpus, [device_of(gpu, vgpus, is_mps=is_mps) for gpu in gpus], "/pipes")


def test_a_mig_share_is_a_slice_of_just_that_size_and_each_is_given_once():
    it = book(mig(3, 2, 1, 1))
    assert [it.take(key, 0, 1).visible for key in ("a", "b")] == ["MIG-0-2", "MIG-0-3"]
    with pytest.raises(NoShareError, match="no MIG instance of 1 slices that is free"):
        it.take("c", 0, 1)
    with pytest.raises(NoShareError, match=r"no MIG instance of 4 slices$"):
        it.take("c", 0, 4)
    it.free("a")
    assert it.take("c", 0, 1).visible == "MIG-0-2"


def test_an_mps_share_has_its_part_of_the_threads_and_of_the_memory():
    found = clothed({"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0,1"}, book(plain()).take("a", 0, 2))
    assert found == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_MPS_PIPE_DIRECTORY": "/pipes",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "28",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }


def test_by_turns_there_are_no_limits_but_never_more_shares_than_the_gpu_has():
    it = book(plain(), is_mps=False)
    inherited = {"CUDA_MPS_PIPE_DIRECTORY": "/other", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "5"}
    assert clothed(inherited, it.take("a", 0, 4)) == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    with pytest.raises(NoShareError, match="has 3 of 7 vGPUs left, and this instance needs 4"):
        it.take("b", 0, 4)


def test_an_instance_without_a_share_sees_no_gpu():
    assert clothed({"CUDA_VISIBLE_DEVICES": "0"}, None) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("device", [-1, 1, 10**9])
def test_a_number_that_no_gpu_has_is_refused(device):
    with pytest.raises(NoShareError, match="no GPU number"):
        book(plain()).take("a", device, 1)


@pytest.mark.parametrize("vgpus", [0, -1, 0.0001, float("nan"), float("inf"), 1e9])
def test_an_amount_that_is_no_share_is_refused(vgpus):
    with pytest.raises(NoShareError):
        book(plain()).take("a", 0, vgpus)


def test_a_lost_gpu_keeps_its_number_and_gives_nothing():
    it = book(plain(0), plain(1))
    it.take("a", 0, 1)
    assert it.lose(0, "XID 79") == ["a"]
    assert [device.is_lost for device in it.devices] == [True, False]
    with pytest.raises(NoShareError, match=r"GPU 0 \(GPU-0\) is lost: XID 79"):
        it.take("b", 0, 1)
    it.restore(0)
    with pytest.raises(NoShareError, match="has 6 of 7"):  # what ran there has not ended yet
        it.take("b", 0, 7)
    it.free("a")
    assert it.take("b", 0, 7).percentage == 100


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (mig(), "without any MIG instance"),
        (mig(4, 4), "do not lie beside each other"),
        (mig(5), "do not lie beside each other"),
        (plain(is_exclusive=True), "one process use it at a time"),
    ],
    ids=["no-instance", "too-many-slices", "unknown-size", "exclusive-without-mps"],
)
def test_a_gpu_that_cannot_be_shared_as_it_is_says_why(gpu, why):
    with pytest.raises(ValueError, match=why):
        device_of(gpu, 7.0, is_mps=False)


def test_under_mps_an_exclusive_gpu_is_shared():
    assert device_of(plain(is_exclusive=True), 7.0, is_mps=True).sharing == "mps"


# --- nothing twice -------------------------------------------------------------------------------------------------

layouts = st.lists(st.sampled_from(MIG_SIZES), min_size=1, max_size=7).filter(lambda sizes: mig_layout(sizes))
machines = st.lists(st.one_of(layouts, st.none()), min_size=1, max_size=16)
amounts = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 4.0, 7.0]), st.floats(0.001, 8.0))
steps = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 30), st.integers(-1, 16), amounts),
    st.tuples(st.just("free"), st.integers(0, 30)),
    st.tuples(st.just("lose"), st.integers(0, 15)),
    st.tuples(st.just("restore"), st.integers(0, 15)),
)


@settings(max_examples=100, deadline=None)
@given(machines, st.booleans(), st.lists(steps, max_size=80))
def test_nothing_is_promised_twice(machine, is_mps, what):
    gpus = [plain(i) if sizes is None else mig(*sizes, index=i) for i, sizes in enumerate(machine)]
    it = book(*gpus, is_mps=is_mps)
    has, gone = {}, set()  # by instance: GPU, what it sees, and its part of the GPU, in thousandths, per cent and MB
    for step in what:
        if step[0] == "take":
            _, key, device, vgpus = step
            try:
                share = it.take(str(key), device, vgpus)
            except NoShareError:
                continue
            assert key not in has
            assert device not in gone
            assert 0 <= device < len(gpus)
            environment = clothed({}, share)
            percentage = int(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 0))
            megabytes = int(environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=0M")[2:-1])
            has[key] = device, environment["CUDA_VISIBLE_DEVICES"], round(vgpus * 1000), percentage, megabytes
        elif step[0] == "free":
            it.free(str(step[1]))
            has.pop(step[1], None)
        elif step[1] < len(gpus):
            if step[0] == "lose":
                ended = it.lose(step[1], "it is gone")
                assert sorted(ended) == sorted(str(key) for key, held in has.items() if held[0] == step[1])
                gone.add(step[1])
            else:
                it.restore(step[1])
                gone.discard(step[1])
        for number, gpu in enumerate(gpus):
            here = [held for held in has.values() if held[0] == number]
            if gpu.slices is None:
                assert all(held[1] == gpu.uuid for held in here)
                assert sum(held[2] for held in here) <= 7000
                assert sum(held[3] for held in here) <= 100 + len(here) * (min([held[2] for held in here] or [70]) < 70)
                assert sum(held[4] for held in here) <= 14 * 1024
            else:
                seen = [held[1] for held in here]
                assert len(seen) == len(set(seen))
                sizes = {part.uuid: part.vgpus * 1000 for part in gpu.slices}
                assert all(sizes[held[1]] == held[2] for held in here)
