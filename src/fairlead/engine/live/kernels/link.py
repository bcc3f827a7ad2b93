"""The link to an instance of a kernel in this process: no frames, only calls."""

from fairlead.engine.live.contracts import LinkReports
from fairlead.engine.live.kernels.instance import KernelInstance
from fairlead.engine.live.wire import Batch, Done, Failed, Ready


class KernelLink:
    """Passes batches to an instance, and what it says to the runtime."""

    def __init__(self) -> None:
        self.instance: KernelInstance | None = None
        self._reports: LinkReports | None = None

    def open(self, reports: LinkReports) -> None:
        """Say to whom messages go."""
        self._reports = reports

    def run(self, batch: Batch) -> None:
        """Pass a batch on."""
        assert self.instance is not None, "a link is passed on with its instance"
        self.instance.run(batch)

    def say(self, message: Ready | Failed | Done) -> None:
        """Pass on what the instance says."""
        if self._reports is not None:
            self._reports.heard(message)
