"""A workflow whose shape depends on its data: a map over frames, a branch per frame, and a join."""

import polars as pl

from fairlead import SLO, Cluster, Scenario, Workflow, simulate
from fairlead.model import Function, Node, Stage
from fairlead.profile import Constant, Profile
from fairlead.report import summarise
from fairlead.workload import Poisson

# split ---> detect, per frame ---> blur, for 3 frames in 10 ---> encode, once every frame is done
video = Workflow(
    name="video",
    stages=(
        Stage(name="split", function="split"),
        Stage(name="detect", function="detect", after=("split",), map=(4, 12)),  # 4 to 12 frames per video
        Stage(name="blur", function="blur", after=("detect",), when=0.3),  # one arm; with 0.7 it is not taken
        Stage(name="encode", function="encode", after=("detect", "blur"), join=True),
    ),
    slo=SLO(latency_s=2.0),
)

seconds = {"split": 0.05, "detect": 0.2, "blur": 0.1, "encode": 0.3}
scenario = Scenario(
    name="video",
    cluster=Cluster(nodes=tuple(Node(name=f"n-{i}", kind="n", vcpus=8) for i in range(3))),
    functions={name: Function(name=name, idle_holds="memory") for name in seconds},
    profiles={name: Profile(law=Constant(value), cold_start_s=0.5, noise=0.1) for name, value in seconds.items()},
    workflows={"video": video},
    arrivals=(Poisson("video", rate_rps=5),),
    duration_s=30,
    warmup_s=5,
)

recording = simulate(scenario, "least-loaded")
summary = summarise(recording)
print(f"{summary.requests} videos, {summary.slo_attainment:.1%} in time, p95 {summary.latency_s.p95:.2f} s")

counts = recording.invocations.group_by("request").agg(
    frames=(pl.col("stage") == "detect").sum(), blurred=(pl.col("stage") == "blur").sum()
)
print(f"frames per video: {counts['frames'].min()} to {counts['frames'].max()}")
print(f"blurred frames:   {counts['blurred'].sum() / counts['frames'].sum():.1%}")

one = recording.invocations.filter(pl.col("request") == 60).sort("start", "item")
print("\nOne of them:")
for stage, item, start, end in one.select("stage", "item", "start", "end").iter_rows():
    print(f"  {stage:7} item {item:2}  {start:6.3f} to {end:6.3f} s")
