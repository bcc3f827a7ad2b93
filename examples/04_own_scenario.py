"""Build a scenario in Python: cluster, functions, profiles, workflow, arrivals."""

from fairlead import SLO, Cluster, Configuration, Scenario, Workflow, simulate
from fairlead.model import Device, Function, Node, Price
from fairlead.profile import Constant, Profile, Row, ScalingLaw, Table, space
from fairlead.report import summarise
from fairlead.workload import Poisson

cluster = Cluster(
    nodes=(
        *(Node(name=f"cpu-{i}", kind="cpu", vcpus=8, memory_gb=32) for i in range(2)),
        Node(name="gpu-0", kind="gpu", vcpus=8, memory_gb=64, devices=(Device(vgpus=7, sharing="mig"),)),
    ),
    bandwidth_gbps=10,
    price=Price(vcpu_usd_per_hour=0.034, vgpu_usd_per_hour=0.67),
)

functions = {
    "transcribe": Function(name="transcribe", memory_gb=4, output_mb=0.1, idle_holds="memory"),
    "translate": Function(name="translate", memory_gb=2, output_mb=0.1, idle_holds="memory"),
    "store": Function(name="store", memory_gb=0.2),
}

# A profile is how long a function takes in each configuration that a policy may choose.
profiles = {
    "transcribe": Profile(
        law=ScalingLaw(t1_s=0.6, delta=0.7),  # on one vCPU and one vGPU; shorter with more vGPUs
        configurations=space(batch=(1, 2), vcpus=(1.0,), vgpus=(1.0, 2.0, 3.0)),
        cold_start_s=3.0,
        noise=0.05,
    ),
    "translate": Profile(
        law=Table((Row(vcpus=1, seconds=0.30), Row(vcpus=2, seconds=0.17), Row(vcpus=4, seconds=0.10))),
        cold_start_s=1.0,
        noise=0.05,
    ),
    "store": Profile(law=Constant(0.02), configurations=(Configuration(vcpus=0.5),)),
}

workflow = Workflow.chain("subtitles", "transcribe", "translate", "store", slo=SLO(latency_s=1.5))

scenario = Scenario(
    name="subtitles",
    cluster=cluster,
    functions=functions,
    profiles=profiles,
    workflows={workflow.name: workflow},
    arrivals=(Poisson(workflow.name, rate_rps=8),),
    duration_s=60,
    warmup_s=10,
)

for policy in ("fifo", "least-loaded", "earliest-deadline"):
    summary = summarise(simulate(scenario, policy))
    print(
        f"{policy:18} in time {summary.slo_attainment:6.1%}, p95 {summary.latency_s.p95:.2f} s, "
        f"cost ${summary.cost_usd:.4f}, MIG slices busy {summary.utilisation['gpu-0'].vgpu:.0%}"
    )
