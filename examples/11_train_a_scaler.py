"""Train an agent per function for a few episodes, and let them scale in a simulation (needs the extra `learn`)."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlead import make_policy, simulate
from fairlead.learn.environments.worlds import tenants_scenario
from fairlead.learn.simppo.plan import Plan, teach
from fairlead.policy.simppo.checkpoint import write_checkpoint
from fairlead.report import summarise

scenario = tenants_scenario(4)  # four functions that share one node
outcome = teach(Plan(scenario=scenario, episodes=6, periods=100, seed=1))  # hundreds of episodes make good ones
rewards = dict(zip(outcome.world.functions, outcome.curve.converged()[0], strict=True))
print("reward per step:", ", ".join(f"{name} {reward:.2f}" for name, reward in rewards.items()))

short = replace(scenario, duration_s=120)
with TemporaryDirectory() as folder:
    file = Path(folder) / "agents.safetensors"
    write_checkpoint(outcome.checkpoint, file)
    for name, parameters in (("simppo", {"checkpoint": str(file)}), ("threshold", {})):
        recording = simulate(short, "least-loaded", scaler=make_policy(name, parameters))
        print(f"{name:9} {summarise(recording).slo_attainment:6.1%} of the requests in time")
