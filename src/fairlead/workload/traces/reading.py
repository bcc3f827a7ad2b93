"""A trace from a path: the format is known by what is there."""

from pathlib import Path

from fairlead.errors import ConfigError, Fault
from fairlead.workload.traces.azure2019 import Progress, read_azure_2019
from fairlead.workload.traces.azure2021 import read_azure_2021
from fairlead.workload.traces.trace import Trace


def read(path: Path, day: int | None = None, progress: Progress = lambda share, doing: None) -> Trace:
    """A folder of the data set of 2019 (its `day`, where it holds several), or a file of the trace of 2021.

    Raises `ConfigError`.
    """
    if not path.is_file():
        return read_azure_2019(path, day, progress)
    if day is not None:
        raise ConfigError(str(path), [Fault("", "is one file, which has no days; leave --day out.")])
    with path.open("rb") as file:
        begins = file.read(64)
    if begins.startswith((b"HashOwner", b"HashApp", b"HashFunction")):
        raise ConfigError(str(path), [Fault("", f"is one of three files; give their folder, {path.parent}.")])
    progress(0.0, "reading calls")
    return read_azure_2021(path).trace
