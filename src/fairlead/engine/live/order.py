"""What a supervisor tells its gateway: everything that was asked for on the command line, as JSON in one argument.

The token is not among it: arguments can be read by every user of the machine, so it stays in the environment or a file.
"""

from typing import Literal

import msgspec

from fairlead.engine.live.gpus import GpuChoice
from fairlead.engine.live.logs.folder import MOST_BYTES


class RayOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Ray cluster to serve on. See `ray.kinds.Share` for what is reserved there."""

    address: str
    share: dict[str, float] = {}
    by_instance: bool = False
    pip: tuple[str, ...] = ()  # requirements of agents and instances
    devices: tuple[str, ...] = ()  # for kernels, on every node
    device_memory_bytes: int = 0  # cap on the memory of each
    certfile: str | None = None  # by which agents and gateway know each other; None on one machine
    keyfile: str | None = None


class ServeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to serve. Paths are absolute. `listen_fd` is the listening socket that the supervisor holds."""

    state: str
    apps: tuple[str, ...] = ()
    listen_fd: int = -1
    supervisor: int = 0  # process id: the gateway ends with it
    policy: str | None = None
    policy_parameters: dict[str, object] = {}
    scaler: str | None = None
    scaler_parameters: dict[str, object] = {}
    control_period_s: float | None = None
    overcommit: float | None = None
    weights: dict[str, float] = {}  # by app
    limits: str | None = None
    gpus: GpuChoice = GpuChoice()
    nodes: str | None = None  # as `nodes.nodes_text` gives them
    monitor: bool | None = None
    warms_up: bool = True
    profiled: bool = True
    records: bool = True
    times_decisions: bool = False
    token_file: str | None = None
    allow_deploy: bool = False
    callback_prefixes: tuple[str, ...] = ()
    certfile: str | None = None
    keyfile: str | None = None
    settings: dict[str, float] = {}  # limits of the gateway, by the name that they have in `Settings`
    agents_fd: int = -1  # the listening socket for agents, which the supervisor holds too; -1 to run instances here
    agents_token_file: str | None = None
    agents_client_ca: str | None = None  # agents must show a certificate that this verifies
    agents_ca: str | None = None  # verifies the certificates of agents, from which values are read
    values: str | None = None  # URL of the object store through which values go from node to node
    values_endpoint: str | None = None
    otel: str | None = None  # URL of an OpenTelemetry receiver; empty for what the environment says
    access_log: Literal["text", "json"] | None = None
    log_bytes: int = MOST_BYTES  # that lines of functions take on the disk
    ray: RayOrder | None = None  # Ray runs the agents
    devices: tuple[str, ...] = ()  # for kernels, such as opencl:0
    device_memory_bytes: int = 0  # cap on the memory of each; 0 for what its driver reports
    growth: dict[str, tuple[int, int]] = {}  # by kind: how many nodes there must and may be
    reloads: bool = False  # an app whose files change is deployed again
    is_restart: bool = False  # the app served before: what cannot start now is tried again
