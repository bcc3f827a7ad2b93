"""A machine of files: procfs, control groups of both versions and CPUs, made by hand."""

from pathlib import Path

STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 {busy0} 0 0 {idle0} 0 0 0 {steal0} 0 0
cpu1 {busy1} 0 0 {idle1} 0 0 0 0 0 0
intr 5 0
ctxt {switches}
"""


class Machine:
    """Two CPUs, one emulated node `w01` of half a core, in version 1 with version 2 beside it."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cpus = root / "cpus"
        self.v1 = root / "cgroup" / "cpu"
        self.v2 = root / "cgroup" / "unified"
        self.node = self.v1 / "run" / "w01"
        self.write(
            self.proc / "self" / "mountinfo",
            f"30 25 0:26 / {self.v1} rw,relatime - cgroup cgroup rw,cpu\n"
            f"31 25 0:27 / {self.v2} rw,relatime - cgroup2 cgroup2 rw\n"
            f"32 25 0:28 / {root} rw,relatime - tmpfs tmpfs rw\n",
        )
        self.stat()
        self.write(self.node / "cpu.cfs_quota_us", "5000\n")
        self.write(self.node / "cpu.cfs_period_us", "10000\n")
        self.write(self.node / "tasks", "")
        self.write(self.node / "7" / "tasks", "70\n71\n")
        self.write(self.node / "7" / "cgroup.procs", "70\n")
        for resource in ("cpu", "memory", "io"):
            self.write(self.proc / "pressure" / resource, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
            self.pressure(resource, 0)
        self.throttled(0, 0)
        self.used(0)
        self.ran(70, 0, 0)
        self.ran(71, 0, 0)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def stat(self, **ticks: int) -> None:
        names = ("busy0", "idle0", "steal0", "busy1", "idle1", "switches")
        self.write(self.proc / "stat", STAT.format(**{name: ticks.get(name, 0) for name in names}))

    def pressure(self, resource: str, micros: int) -> None:
        text = (
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
        )
        self.write(self.v2 / "run" / "w01" / f"{resource}.pressure", text)

    def throttled(self, periods: int, throttled: int) -> None:
        text = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 5\n"
        self.write(self.node / "cpu.stat", text)

    def used(self, micros: int, group: str = "w01") -> None:
        self.write(self.v2 / "run" / group / "cpu.stat", f"usage_usec {micros}\nuser_usec 1\n")

    def ran(self, thread: int, run_ns: int, wait_ns: int) -> None:
        self.write(self.proc / str(thread) / "schedstat", f"{run_ns} {wait_ns} 12\n")
