"""An app as it is served and loaded: its workflows, what is sent to each, and what was measured of it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fairlead.app.describe import describe
from fairlead.app.load import no_app_in, split_address
from fairlead.app.manifest import Manifest
from fairlead.app.scenario import measured_beside
from fairlead.calibrate.offered import calls_of
from fairlead.errors import ConfigError, Fault
from fairlead.load import Call
from fairlead.profile.measured import MeasuredProfiles


class LiveApp:
    """An app at a path: a folder with an `app.py`, `app.py`, or `app.py:name`.

    The file is described when this is made, and again by `reload`, for objectives may depend on its profile.

    Args:
        path: Where it is.
        env: Variables that it is described and served with, besides this process's own.

    Raises:
        ConfigError: There is no app, or it cannot be described.
    """

    def __init__(self, path: str | Path, env: Mapping[str, str] | None = None) -> None:
        self.path = str(path)
        self.env = dict(env or {})
        file, name = split_address(path)
        if file.is_dir():
            raise no_app_in(file)
        if not file.is_file():
            raise ConfigError(self.path, [Fault("", "there is no such app file.")])
        resolved = file.resolve()
        self.address = Path(f"{resolved}:{name}" if name else resolved)
        self.manifest: Manifest
        self.measured: MeasuredProfiles | None
        self.reload()

    def reload(self) -> None:
        """Describe the file again, and read the profile beside it."""
        with self.environment():
            self.manifest = describe(self.address)
        self.measured = measured_beside(self.address)

    @property
    def name(self) -> str:
        """What the app calls itself."""
        return self.manifest.name

    @property
    def workflows(self) -> tuple[str, ...]:
        """The names of its workflows, in the order of the file."""
        return tuple(spec.name for spec in self.manifest.workflows)

    @property
    def slo_s(self) -> dict[str, float | None]:
        """The latency objective of each workflow; None where it has none."""
        return {spec.name: spec.slo_s for spec in self.manifest.workflows}

    def calls(self, *, slo_scale: float = 1.0, deadline_s: float | None = None) -> tuple[Call, ...]:
        """One call per workflow, with its example as the input (null without one).

        Its deadline is the workflow's objective times `slo_scale`, or `deadline_s` where that is given.
        """
        return calls_of(self.manifest, slo_scale=slo_scale, deadline_s=deadline_s)

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Processes that are started inside get the variables of the app."""
        before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
