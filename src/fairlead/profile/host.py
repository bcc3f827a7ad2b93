"""The machine that serves: what the gateway, its wake-ups and the sharing of cores cost, besides what functions take.

`fairlead profile` measures it once per machine; a simulation that has it predicts what a client of `fairlead serve`
would see. Without it a simulation knows the functions' times only.
"""

import os
import platform
from collections.abc import Mapping
from math import exp, inf
from os import PathLike
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError, Fault
from fairlead.profile.links import HERE, Link

FORMAT = 1
MAX_BYTES = 1 << 20
MAX_OPEN = 10_000
"""Requests that `fairlead serve` has open at once, if nothing is said."""
MAX_SENT = 1_000_000
_FOLLOWS = 0.9  # elasticity of the CPU time of gateway and functions (docs/design/prediction.md)

GATEWAY_TIMES = ("request_s", "turn_s", "send_s", "end_s", "invocation_s", "answer_s", "refusal_s", "mb_s")
_TIMES = (
    *GATEWAY_TIMES,
    "hop_s",
    "cold_factor",
    "cold_after_s",
    "instance_cold_s",
    "client_s",
    "spin_s",
    "slowness",
    "measured_rps",
)


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine with a gateway, its instances, and maybe the load generator. Times are CPU seconds if not said.

    Args:
        cores: How many processes run at once; more than that share them evenly.
        request_s: Of the gateway, to read one request and hand it to the controller.
        turn_s: Of one turn of the controller, without the policy.
        send_s: To send a batch to its instance.
        end_s: To take in a batch that has ended.
        invocation_s: For each invocation of a batch, in both directions.
        answer_s: To write one answer.
        refusal_s: To write one refusal.
        mb_s: For each MB of a request's input and answer.
        decision_s: By policy: of one decision.
        decision_waiting_s: By policy: what each waiting invocation adds to that.
        hop_s: Elapsed time of a run that does nothing, from sending it to having its result. Measured times of
            functions contain it.
        wake_s: Elapsed time from an event until a sleeping process handles it: equally likely times, the least first,
            while a core is free.
        wake_busy_s: The same while every core is in use.
        cold_factor: How many times as long the gateway's code takes after a long pause, when it is out of the caches,
            less 1.
        cold_after_s: The pause after which about two thirds of that is reached. After as long at work it is over.
        instance_cold_s: What the first run of an instance takes longer after such a pause, elapsed.
        client_s: Of the load generator, per request, where it runs on the same machine; 0 where it does not.
        spin_s: How long the computation of `fairlead.calibrate.speed` took while all this was measured; 0 where that is
            not known.
        slowness: How many times as long computing takes now; 1 as it was measured.
        measured_rps: The most requests per second that it was measured with; 0 where that is not known.
        max_open: Requests that may be open at once; the others are refused.
        max_sent: Requests that the load generator has open at once; it does not send those beyond.
        cpu_share: By function: the part of a run's time in which it uses a core; 1 where nothing is said.
        cores_used: By function and vCPUs ("2", "0.5"): how many cores a run keeps busy on average, more than one if it
            has several threads. `cpu_share` holds for what is not here.
        run_s: By function: what a run takes longer than its profile says, of a core, whatever its size: other processes
            have used the caches in between. Negative where it takes less.
        run_share: By function: what it takes longer besides, as a share of what it takes alone.
        run_delay_s: By function: elapsed time that runs lose besides, without a core: equally likely times, the least
            first. A process may wake on a core that another one uses, though one is free.
        run_delay_busy_s: The same where others wait while a run is sent, so that the gateway has more to do just then.
        values_mb: By workflow: the size of a request's input and answer.
        arms: By workflow and stage: how often an arm of a branch is really taken, where that was seen. Policies go on
            seeing what the workflow declares.
        items: Likewise, how many items a map stage really has.
        links: By name or kind of a node: how its instances are reached, where they are no children of the gateway.
    """

    cores: int
    request_s: float = 0.0
    turn_s: float = 0.0
    send_s: float = 0.0
    end_s: float = 0.0
    invocation_s: float = 0.0
    answer_s: float = 0.0
    refusal_s: float = 0.0
    mb_s: float = 0.0
    decision_s: Mapping[str, float] = {}
    decision_waiting_s: Mapping[str, float] = {}
    hop_s: float = 0.0
    wake_s: tuple[float, ...] = ()
    wake_busy_s: tuple[float, ...] = ()
    cold_factor: float = 0.0
    cold_after_s: float = 0.0
    instance_cold_s: float = 0.0
    client_s: float = 0.0
    spin_s: float = 0.0
    slowness: float = 1.0
    measured_rps: float = 0.0
    max_open: int = MAX_OPEN
    max_sent: int = MAX_SENT
    cpu_share: Mapping[str, float] = {}
    cores_used: Mapping[str, Mapping[str, float]] = {}
    run_s: Mapping[str, float] = {}
    run_share: Mapping[str, float] = {}
    run_delay_s: Mapping[str, tuple[float, ...]] = {}
    run_delay_busy_s: Mapping[str, tuple[float, ...]] = {}
    values_mb: Mapping[str, float] = {}
    arms: Mapping[str, Mapping[str, float]] = {}
    items: Mapping[str, Mapping[str, int]] = {}
    links: Mapping[str, Link] = {}

    def __post_init__(self) -> None:
        for name in ("cores", "max_open", "max_sent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in _TIMES:
            _check(name, getattr(self, name))
        for name in ("decision_s", "decision_waiting_s", "values_mb"):
            for key, value in getattr(self, name).items():
                _check(f"{name}.{key}", value)
        for name, least in (("run_s", -inf), ("run_share", -1.0)):
            for key, value in getattr(self, name).items():
                if not least < value < inf:
                    raise ValueError(f"{name}.{key} must be finite and above {least:g}; got {value}.")
        shares = {f"cpu_share.{key}": share for key, share in self.cpu_share.items()}
        for workflow, arms in self.arms.items():
            shares |= {f"arms.{workflow}.{stage}": share for stage, share in arms.items()}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be in [0, 1]; got {share}.")
        for function, used in self.cores_used.items():
            for vcpus, count in used.items():
                _check(f"cores_used.{function}.{vcpus}", count)
        for workflow, stages in self.items.items():
            for stage, items in stages.items():
                if items < 1:
                    raise ValueError(f"items.{workflow}.{stage} must be at least 1; got {items}.")
        lists = {"wake_s": self.wake_s, "wake_busy_s": self.wake_busy_s}
        for name in ("run_delay_s", "run_delay_busy_s"):
            lists |= {f"{name}.{function}": steps for function, steps in getattr(self, name).items()}
        for name, steps in lists.items():
            if list(steps) != sorted(steps):
                raise ValueError(f"{name} must be sorted, the least first; got {list(steps)}.")
            for value in steps:
                _check(name, value)

    def now(self, spin_s: float | None) -> "Host":
        """The host while the CPUs are as fast as this computation time says; itself where one of both is unknown.

        What is served follows the computation nearly in proportion.
        """
        if not spin_s or not self.spin_s:
            return self
        return msgspec.structs.replace(self, slowness=(spin_s / self.spin_s) ** _FOLLOWS)

    def link(self, node: str, kind: str) -> Link:
        """The link to a node: its own, else that of its kind, else none, as to a child process."""
        return self.links.get(node) or self.links.get(kind) or HERE

    def way_to_s(self, node: str, kind: str, *, is_kernel: bool = False) -> float:
        """Elapsed time of a run that does nothing on a node, which measured times of functions there contain.

        Those of kernels do not contain the wake-up of a process: the gateway itself waits for the device.
        """
        return (0.0 if is_kernel else self.hop_s) + 2 * self.link(node, kind).way_s

    def decides_s(self, policy: str) -> float:
        """CPU time of one decision of a policy; of one that was not measured, that of the slowest that was."""
        found = self.decision_s.get(policy)
        return max(self.decision_s.values(), default=0.0) if found is None else found

    def uses(self, function: str, vcpus: float) -> float:
        """How many cores a run keeps busy on average while it is alone."""
        used = self.cores_used.get(function, {}).get(f"{vcpus:g}")
        return self.cpu_share.get(function, 1.0) if used is None else used

    def coldness(self, pause_s: float) -> float:
        """How far code is out of the caches after a pause, in [0, 1]."""
        return 1 - exp(-pause_s / self.cold_after_s) if self.cold_after_s else float(pause_s > 0)

    def wakes_s(self, luck: float, *, is_busy: bool) -> float:
        """How long a wake-up takes; `luck` in [0, 1) picks one of the equally likely times."""
        times = (self.wake_busy_s or self.wake_s) if is_busy else self.wake_s
        return times[int(luck * len(times))] if times else 0.0


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine file: what was measured, and where. `others_share` is what other programs used of the CPUs then."""

    format: int = FORMAT
    cpu: str = ""
    others_share: float | None = None
    host: Host

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format must be {FORMAT}, the only one this version reads; got {self.format}.")


def cpu_name() -> str:
    """The model of the CPU; the architecture where the kernel does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.machine() or "unknown"


def machine_file() -> Path:
    """Where the profile of this machine lies: in the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "fairlead" / "machine.json"


def read_machine(path: str | PathLike[str]) -> MachineProfile:
    """The machine file at this path. Raises `ConfigError`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"the file is larger than {MAX_BYTES // 2**20} MiB")
        return msgspec.json.decode(content, type=MachineProfile)
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot be read: {error.strerror}.")]) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        what = f"is no machine profile, as `fairlead profile` writes it: {error}."
        raise ConfigError(str(path), [Fault("", what)]) from None


def write_machine(machine: MachineProfile, path: str | PathLike[str]) -> None:
    """Write a machine file, whole or not at all. Raises `OSError`."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.new")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(machine), indent=1) + b"\n")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _check(name: str, value: float) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"{name} must be finite and not negative; got {value}.")
