"""What can go wrong with kernels.

KernelError
├── BuildError          a kernel's source does not compile, or has no such kernel; carries the compiler's message
├── DeviceMemoryError   the request does not fit into the device's memory
├── DeviceLostError     the device, or the process that drives it, was lost each time the request was tried
├── LaunchError         the driver refuses a launch: a work group that is too large, sizes that do not fit
├── RequestError        the inputs or keys do not fit the graph
├── TimeLimitError      loading or running took longer than allowed; the executor was restarted
└── ValueMissingError   a key has no value, or one that is too short

A graph that is wrong is a `GraphError`, which lists its faults as every `ConfigError` does. A model that cannot be a
graph is an `ExportError`.
"""

from fairlead.errors import ConfigError, FairleadError


class GraphError(ConfigError):
    """A kernel graph is wrong; `faults` have paths such as `kernels[3].arguments[0].buffer`."""


class ExportError(FairleadError):
    """A model cannot be made into a kernel graph."""


class KernelError(FairleadError):
    """A request for kernels failed."""

    kind = "kernel"


class BuildError(KernelError):
    """A kernel's source does not compile, or has no such kernel."""

    kind = "build"


class DeviceMemoryError(KernelError):
    """The request does not fit into the device's memory."""

    kind = "memory"


class DeviceLostError(KernelError):
    """The device, or the process that drives it, was lost."""

    kind = "lost"


class LaunchError(KernelError):
    """The driver refuses a launch."""

    kind = "launch"


class RequestError(KernelError):
    """The inputs or keys of a request do not fit its graph."""

    kind = "request"


class TimeLimitError(KernelError):
    """Loading or running took longer than allowed."""

    kind = "limit"


class ValueMissingError(KernelError):
    """A key has no value, or one that is too short."""

    kind = "value"


KINDS: dict[str, type[KernelError]] = {
    error.kind: error
    for error in (
        KernelError, BuildError, DeviceMemoryError, DeviceLostError, LaunchError, RequestError, TimeLimitError,
        ValueMissingError,
    )
}  # fmt: skip
