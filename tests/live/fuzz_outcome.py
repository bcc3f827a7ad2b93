"""What a run of the fuzzer came to, and a thread that watches the gateway meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path


@dataclass
class Limits:
    """What a run must stay within."""

    health_s: float = 0.5
    memory_mb: float = 400.0


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    requests: int = 0
    answers: int = 0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    violations: Counter[tuple[str, str]] = field(default_factory=Counter)
    files: list[Path] = field(default_factory=list)
    checks: int = 0
    worst_check_s: float = 0.0
    failed_checks: list[str] = field(default_factory=list)
    memory_before_mb: float = 0.0
    peak_mb: float = 0.0
    log_faults: list[str] = field(default_factory=list)
    marked: int = 0

    def faults(self, limits: Limits) -> list[str]:
        """Every broken rule, in a line each."""
        found = [f"{count} x {name}: {what}" for (name, what), count in self.violations.most_common()]
        found += [f"health check: {what}" for what in self.failed_checks[:5]]
        if self.worst_check_s > limits.health_s:
            found.append(f"the worst health check took {self.worst_check_s:.2f} s, more than {limits.health_s:g} s")
        if self.peak_mb > limits.memory_mb:
            found.append(f"the gateway took {self.peak_mb:.0f} MB, more than {limits.memory_mb:.0f} MB")
        if self.marked:
            found.append(f"a request that was data has been executed {self.marked} times")
        found += [f"log: {line}" for line in self.log_faults[:5]]
        return found

    def table(self, limits: Limits) -> str:
        """The run, for people."""
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        cases = ", ".join(f"{name}: {count:,}" for name, count in self.cases.most_common())
        lines = [
            f"seed             {self.seed}",
            f"requests         {self.requests:,} on {self.cases.total():,} scripts in {self.seconds:.1f} s "
            f"({self.requests / max(self.seconds, 1e-9):,.0f}/s), {self.answers:,} answers",
            f"by status        {statuses}",
            f"by mutation      {cases}",
            f"health checks    {self.checks:,}, worst {self.worst_check_s * 1e3:.0f} ms (limit {limits.health_s:g} s)",
            f"gateway memory   {self.memory_before_mb:.0f} MB before, peak {self.peak_mb:.0f} MB "
            f"(limit {limits.memory_mb:.0f} MB)",
            f"log faults       {len(self.log_faults)}",
        ]
        faults = self.faults(limits)
        lines += [f"FAULT            {fault}" for fault in faults] or ["no fault found"]
        lines += [f"replay           {file}" for file in self.files]
        return "\n".join(lines)


class Watcher(threading.Thread):
    """Asks /healthz on a connection of its own, and looks at the gateway's memory."""

    def __init__(self, address: tuple[str, int], pid: Callable[[], int | None], outcome: Outcome) -> None:
        super().__init__(daemon=True)
        self._address, self._pid, self._outcome = address, pid, outcome
        self._stop_now = threading.Event()
        outcome.memory_before_mb = self._memory_mb("VmRSS")

    def run(self) -> None:
        connection = HTTPConnection(*self._address, timeout=60)
        while not self._stop_now.wait(0.05):
            began = time.monotonic()
            for is_last in (False, True):  # an idle connection may be closed just now
                try:
                    connection.request("GET", "/healthz")
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status != 200:
                        self._outcome.failed_checks.append(f"status {answer.status}")
                    break
                except (OSError, HTTPException) as error:
                    connection.close()
                    if is_last:
                        self._outcome.failed_checks.append(repr(error))
            self._outcome.checks += 1
            self._outcome.worst_check_s = max(self._outcome.worst_check_s, time.monotonic() - began)
            if self._outcome.checks % 10 == 0:
                self._outcome.peak_mb = max(self._outcome.peak_mb, self._memory_mb("VmHWM"))
        connection.close()

    def stop(self) -> None:
        self._stop_now.set()
        self.join()
        self._outcome.peak_mb = max(self._outcome.peak_mb, self._memory_mb("VmHWM"))

    def _memory_mb(self, name: str) -> float:
        with suppress(OSError):
            for line in Path(f"/proc/{self._pid()}/status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) / 1024
        return 0.0
