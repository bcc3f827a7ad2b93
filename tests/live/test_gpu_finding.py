"""Finding and watching GPUs through pynvml, on a stand-in for the library of the driver that may answer oddly."""

import asyncio
import os

import pytest
from gpu_machine import GIB, LOST, FakeGpu, machine, mig_gpu, mps_gpu, needs_compiler, on

from fairlead.engine.live.gpus import Gpu, GpuChoice, MachineGpus, NoShareError, UnknownGpuError, offered
from fairlead.engine.live.gpus.choice import assigned, has_mps, visible
from fairlead.engine.live.gpus.nvml import Nvml, NvmlError

pytestmark = needs_compiler


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "none"))

    def make(*gpus, **others):
        made = machine(tmp_path, gpus)
        for name, value in others.items():
            setattr(made, name, value)
        made.write()
        opened.append(on(made, monkeypatch))
        return opened[-1].__enter__()

    opened = []
    return make


def found(**choice):
    gpus = MachineGpus.find(GpuChoice(**choice))
    gpus.close()
    return gpus


def test_mig_and_mps_are_offered_as_they_are(here, monkeypatch):
    made = here(mig_gpu(), mps_gpu())
    for name, value in made.start_mps().items():
        monkeypatch.setenv(name, value)
    gpus = found()
    assert offered(gpus.devices) == "A100 GPU-mig0 (MIG 3+2+1+1), L40S GPU-mps1 (7 vGPUs by MPS)"
    assert [(d.sharing, d.partition, d.is_fixed, d.memory_gb) for d in gpus.devices] == [
        ("mig", (3, 2, 1, 1), True, 40),
        ("mps", (), False, 14),
    ]
    assert gpus.lines == ()


def test_without_a_living_mps_daemon_gpus_are_shared_by_turns(here, monkeypatch):
    made = here(mps_gpu())
    pipes = made.start_mps(daemon=2**22 + 1)  # no process has such a number
    assert not has_mps(pipes)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", pipes["CUDA_MPS_PIPE_DIRECTORY"])
    assert offered(found().devices) == "L40S GPU-mps1 (7 vGPUs by turns)"
    assert offered(found(sharing="mps", vgpus=2).devices) == "L40S GPU-mps1 (2 vGPUs by MPS)"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("all", ["GPU-aa1", "GPU-ab2", "GPU-cc3"]),
        ("none", []),
        ("2,0", ["GPU-cc3", "GPU-aa1"]),
        ("GPU-ab2", ["GPU-ab2"]),
        ("GPU-c", ["GPU-cc3"]),
    ],
)
def test_gpus_are_chosen_by_number_and_uuid(here, choice, names):
    here(*(FakeGpu(uuid) for uuid in ("GPU-aa1", "GPU-ab2", "GPU-cc3")))
    assert [device.name for device in found(gpus=choice).devices] == [f"A100 {name}" for name in names]


def test_one_mig_instance_can_be_chosen(here):
    here(mig_gpu())
    (device,) = found(gpus="MIG-two,MIG-one-b").devices
    assert device.partition == (2, 1)


@pytest.mark.parametrize("choice", ["3", "GPU-a", "GPU-zz", "x", "-1", "0,,1"])
def test_a_gpu_that_is_not_there_is_an_error_that_lists_what_is(here, choice):
    here(FakeGpu("GPU-aa1"), FakeGpu("GPU-ab2"))
    with pytest.raises(UnknownGpuError, match=r"this machine has no GPU .*; there is 0 \(GPU-aa1\), 1 \(GPU-ab2\)"):
        found(gpus=choice)


def test_visible_devices_limit_what_is_offered_as_they_limit_cuda():
    gpus = [Gpu(index=i, uuid=f"GPU-{i}{i}") for i in range(3)]
    assert [gpu.index for gpu in visible("2, 0", gpus)] == [2, 0]
    assert [gpu.index for gpu in visible("1,-1,0", gpus)] == [1]
    assert [gpu.index for gpu in visible("GPU-22", gpus)] == [2]
    assert visible("", gpus) == visible("9", gpus) == []


def test_what_ray_gives_keeps_its_order_and_needs_no_nvml():
    alike = [Gpu(index=i, uuid=f"GPU-{i}{i}", name="A") for i in range(3)]
    mixed = [Gpu(index=i, uuid=f"GPU-{i}{i}", name=str(i)) for i in range(3)]
    assert [gpu.uuid for gpu in assigned({"CUDA_VISIBLE_DEVICES": "2,0"}, alike)] == ["GPU-22", "GPU-00"]
    assert [gpu.uuid for gpu in assigned({"CUDA_VISIBLE_DEVICES": "2,0"}, mixed)] == ["2", "0"]
    assert [gpu.uuid for gpu in assigned({"CUDA_VISIBLE_DEVICES": "2,0"}, [])] == ["2", "0"]
    ordered = {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [gpu.uuid for gpu in assigned(ordered, mixed)] == ["GPU-22", "GPU-00"]
    assert assigned({"CUDA_VISIBLE_DEVICES": ""}, alike) == assigned({}, alike) == []


def test_sixteen_gpus(here):
    here(*(FakeGpu(f"GPU-{i:02}") for i in range(16)))
    assert len(found().devices) == 16


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (FakeGpu("GPU-x", health=LOST), "GPU is lost"),
        (FakeGpu("GPU-x", health=999), "Error"),
        (FakeGpu("evil,GPU-1"), "is no UUID"),
        (FakeGpu("GPU-x", memory=0), "0 bytes"),
        (FakeGpu("GPU-x", mode=2), "prohibits"),
        (FakeGpu("GPU-x", mode=3), "one process use it at a time"),
        (FakeGpu("GPU-x", slices={}), "without any MIG instance"),
        (FakeGpu("GPU-x", slices={"MIG-a": 0}), "without any MIG instance"),
        (FakeGpu("GPU-x", slices={"odd\x01": 1}), "without any MIG instance"),
        (FakeGpu("GPU-x", slices={"MIG-a": 5}), "do not lie beside"),
        (FakeGpu("GPU-ok"), "has its UUID"),
    ],
    ids=str,
)
def test_a_gpu_that_answers_oddly_is_left_out_and_the_others_are_not(here, gpu, why):
    here(FakeGpu("GPU-ok"), gpu)
    gpus = found()
    assert [device.name for device in gpus.devices] == ["A100 GPU-ok"]
    assert len(gpus.lines) == 1
    assert why in gpus.lines[0]


def test_a_gpu_without_a_name_or_mig_is_a_gpu(here):
    here(FakeGpu("GPU-x", name="-", mig=-3), FakeGpu("GPU-y", name="\xff\xfe", mig=-13))
    assert [device.sharing for device in found().devices] == ["time", "time"]


def test_without_a_driver_there_is_no_gpu_and_the_reason_is_known(here):
    here(init=9)
    gpus = found()
    assert gpus.devices == ()
    assert gpus.lines == ("NVML finds no GPU: Driver Not Loaded",)
    with pytest.raises(NvmlError, match="Driver Not Loaded"):
        Nvml()


@pytest.mark.parametrize(
    "choice", [{"gpus": ""}, {"sharing": "mig"}, {"vgpus": 0.0}, {"vgpus": float("nan")}, {"vgpus": 1e9}], ids=str
)
def test_settings_that_can_never_be_are_refused(choice):
    with pytest.raises(UnknownGpuError, match="must be"):
        GpuChoice(**choice).check()


# --- watching ------------------------------------------------------------------------------------------------------


def watched(made):
    nvml = Nvml()
    gpus, _ = nvml.scan()
    nvml.watch({gpu.uuid: gpu for gpu in gpus})
    return nvml


def test_what_a_session_uses_is_told_by_gpu_and_slice(here):
    made = here(mig_gpu(), mps_gpu())
    nvml, me = watched(made), os.getpid()
    made.gpus[0].processes = [(me, 2 * GIB, 0, "MIG-two"), (2**22 + 1, GIB, 0, "MIG-three")]
    made.gpus[1].processes = [(me, 3 * GIB, 40, "")]
    made.write()
    ((session, use),) = nvml.uses().items()
    assert (session, use.memory_bytes, use.utilisation) == (os.getsid(0), 5 * GIB, 0.4)
    made.gpus[1].processes = [(me, 2**63, 4_000_000_000, ""), (0, 1, 1, ""), (4_000_000_000, 1, 1, "")]
    made.write()
    assert [use.utilisation for use in nvml.uses().values()] == [1.0]  # whatever it says
    nvml.close()


def test_a_gpu_is_lost_by_what_befalls_it_and_not_by_a_faulty_program(here, monkeypatch):
    made = here(mig_gpu(), mps_gpu(), FakeGpu("GPU-c"))
    nvml = watched(made)
    made.gpus[0].xids, made.gpus[1].xids = [13, 31, 43, 45], [45, 79]
    made.gpus[2].health = LOST
    made.write()
    assert nvml.lost() == {"GPU-c": "GPU is lost", "GPU-mps1": "the driver reported the critical error XID 79"}
    made.gpus[2].health = 0
    made.write()
    assert set(nvml.lost()) == {"GPU-mps1"}  # it is back; what had a critical error is to be looked at by somebody
    nvml.close()


def test_a_gpu_that_left_the_bus_and_came_back_is_found_under_its_uuid(here, monkeypatch):
    made = here(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    nvml = watched(made)
    a, b = made.gpus
    made.gpus = [b]
    made.write()
    assert set(nvml.lost()) == {"GPU-a"}
    made.gpus = [b, a]
    made.write()
    monkeypatch.setattr("fairlead.engine.live.gpus.nvml._AGAIN_S", 0.0)
    assert nvml.lost() == {}
    nvml.close()


@pytest.mark.parametrize(
    ("slices", "why"),
    [({"MIG-three": 3}, "have changed"), (None, "MIG was turned off")],
    ids=["other-instances", "mig-off"],
)
def test_a_gpu_whose_mig_instances_change_is_lost_until_they_are_back(here, slices, why):
    made = here(mig_gpu())
    nvml = watched(made)
    before, made.gpus[0].slices = made.gpus[0].slices, slices
    made.write()
    assert why in nvml.lost()["GPU-mig0"]
    made.gpus[0].slices = before
    made.write()
    assert nvml.lost() == {}
    nvml.close()


def test_what_is_no_process_or_no_handle_is_no_matter(here):
    made = here(mig_gpu(), mps_gpu())
    nvml = watched(made)
    made.gpus = []
    made.write()
    assert set(nvml.lost()) == {"GPU-mig0", "GPU-mps1"}
    assert nvml.uses() == {}
    made.init = 9
    made.write()
    assert set(nvml.lost()) == {"GPU-mig0", "GPU-mps1"}
    nvml.close()


# --- in an agent ---------------------------------------------------------------------------------------------------


def test_gpus_that_ray_gave_are_used_in_its_order_as_one_vgpu_each(here, monkeypatch):
    here(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    gpus = MachineGpus.given()
    assert [(device.name, device.vgpus) for device in gpus.devices] == [("A100 GPU-c", 1.0), ("A100 GPU-a", 1.0)]
    assert gpus.environment({}, "1.1", 1, 0.5)["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    gpus.close()


def test_where_no_gpu_is_offered_nothing_is_hidden_and_nothing_is_given(here):
    here(FakeGpu("GPU-a"))
    gpus = found(gpus="none")
    assert gpus.environment({"CUDA_VISIBLE_DEVICES": "0"}, "1.1", -1, 0.0) == {"CUDA_VISIBLE_DEVICES": "0"}
    with pytest.raises(NoShareError, match="no GPU number 0"):
        gpus.environment({}, "1.1", 0, 1.0)


@pytest.mark.slow
def test_a_driver_that_does_not_answer_loses_its_gpus_until_it_does(here):
    made = here(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    gpus = MachineGpus.find(GpuChoice())
    gpus.silence_s = 1.5
    lost, seen = [], []

    async def until(condition):
        async with asyncio.timeout(120):
            while not condition():
                await asyncio.sleep(0.02)

    async def main():
        gpus.open(lambda keys, why: lost.append((keys, why)), lambda: seen.append(offered(gpus.devices)))
        gpus.environment({}, "1.1", 1, 3.0)
        made.hang_s = 4.0
        made.write()
        await until(lambda: len(lost) == 2)
        assert [keys for keys, _ in lost] == [[], ["1.1"]]
        assert "the NVIDIA driver has not answered for " in lost[1][1]
        with pytest.raises(NoShareError, match="is lost"):
            gpus.environment({}, "1.2", 0, 1.0)
        made.hang_s = 0.0
        made.write()
        await until(lambda: len(seen) == 2)
        gpus.close()

    asyncio.run(main())
    lost_gpu, there = "A100 GPU-{} (lost)", "A100 GPU-{} (7 vGPUs by turns)"
    assert seen == [", ".join(text.format(name) for name in "ab") for text in (lost_gpu, there)]
