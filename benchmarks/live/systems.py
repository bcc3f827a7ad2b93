"""Who is measured: how each is started for a stage, and where it is asked."""

import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOOP, CHAIN, BATCHED = "noop", "noop3", "batched"
STAGES = (NOOP, CHAIN, BATCHED)

REFERENCE, REFERENCE_HOP, REFERENCE_DEADLINE = "reference", "reference-hop", "reference-deadline"
RAY_DEFAULT, RAY_256 = "ray-default", "ray-256"
FAIRLEAD, FAIRLEAD_FIFO = "fairlead", "fairlead-fifo"
RAYS = (RAY_DEFAULT, RAY_256)

Command = Callable[[Path], list[str]]


@dataclass(frozen=True, kw_only=True)
class System:
    """One server program in one set-up. `commands` has the stages it is measured on; each takes a folder to work in."""

    name: str
    label: str
    commands: Mapping[str, Command]
    paths: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def systems(ray_python: Path) -> list[System]:
    """All of them, the reference first."""
    return [
        System(
            name=REFERENCE,
            label="bare reference (FIFO)",
            commands={NOOP: _reference("noop"), BATCHED: _reference("fifo")},
        ),
        System(name=REFERENCE_HOP, label="bare reference, two processes", commands={NOOP: _reference("hop")}),
        System(
            name=REFERENCE_DEADLINE,
            label="bare reference, deadline-aware, told the cost",
            commands={BATCHED: _reference("deadline")},
        ),
        *(
            System(
                name=name,
                label=f"Ray Serve, {label}",
                commands={stage: ray_command(ray_python, stage, setup) for stage in STAGES},
            )
            for name, label, setup in ((RAY_DEFAULT, "defaults", "default"), (RAY_256, "256 ongoing", "256"))
        ),
        *(
            System(
                name=name,
                label=label,
                commands={stage: fairlead_command(stage, policy) for stage in STAGES},
                paths={stage: f"/v1/workflows/{stage}" for stage in STAGES},
            )
            for name, policy, label in (
                (FAIRLEAD_FIFO, "fifo", "Fairlead, `fifo` (one at a time)"),
                (FAIRLEAD, "fairlead", "Fairlead"),
            )
        ),
    ]


def _reference(kind: str) -> Command:
    return lambda folder: [sys.executable, str(HERE / "ref_server.py"), kind]


def ray_command(python: Path, stage: str, setup: str, address: str | None = None) -> Command:
    """How Ray Serve is started for a stage, in a cluster of its own or in the one at this address."""
    return lambda folder: [
        *(str(python), str(HERE / "ray_app.py"), stage),
        *("--setup", setup, "--port", str(_free_port())),
        *(() if address is None else ("--address", address)),
    ]


def fairlead_command(stage: str, policy: str | None = None) -> Command:
    """How `fairlead serve` is started for a stage; which Fairlead that is, the environment says."""
    app = "batches" if stage == BATCHED else "noops"
    return lambda folder: [
        *(sys.executable, "-m", "fairlead", "serve", f"{HERE / 'app.py'}:{app}"),
        *(() if policy is None else ("--policy", policy)),
        *("--port", "0", "--state", str(folder)),
    ]


def _free_port() -> int:
    """One that is free now; Ray cannot be told to choose."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
