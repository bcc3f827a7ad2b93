"""A run as a folder: three Parquet tables and `run.json`; and the JSON of several runs.

Equal recordings give equal bytes, except for what was measured (`measured` in `run.json`). The head also has a digest
of each table: the Parquet reader ends the whole process on some damaged files, so they are not shown to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path

import msgspec
import polars as pl

from fairlead.errors import ConfigError, Fault
from fairlead.model import (
    INSTANCE_SCHEMA,
    INVOCATION_SCHEMA,
    REQUEST_SCHEMA,
    Cluster,
    DeviceMemoryUse,
    NodeLife,
    Recording,
    Refusal,
)
from fairlead.report.labels import plain
from fairlead.report.metrics import Summary
from fairlead.runlog.floats import tag_floats, untag_floats

FORMAT = 1
RUN = "run.json"
TABLES: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "requests": REQUEST_SCHEMA,
    "invocations": INVOCATION_SCHEMA,
    "instances": INSTANCE_SCHEMA,
}
ROWS_PER_GROUP = 262_144


class _Measured(msgspec.Struct, kw_only=True):
    run_wall_s: float
    decision_s: tuple[float, ...]


class _Run(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    version: str
    scenario: str
    policy: str
    scaler: str | None
    seed: int
    parameters: dict[str, object]
    point: dict[str, object]
    engine: str
    warmup_s: float
    duration_s: float
    end_s: float
    cluster: Cluster
    refusals: tuple[Refusal, ...]
    stale_events: int
    sha256: dict[str, str]
    measured: _Measured
    device_memory: tuple[DeviceMemoryUse, ...] = ()
    nodes: tuple[NodeLife, ...] = ()


def write_run(recording: Recording, folder: Path | str) -> Path:
    """Write the run into a folder, made if need be, and return it. A run already there is replaced."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # `run.json` goes first and comes last: a write cut short leaves no run rather than half of one.
        (folder / RUN).unlink(missing_ok=True)
        digests = {}
        for name in TABLES:
            data = _parquet(getattr(recording, name))
            digests[name] = sha256(data).hexdigest()
            (folder / f"{name}.parquet").write_bytes(data)
        head = plain(_head(recording, digests))
        assert isinstance(head, dict)
        if not recording.nodes:  # as it was before clusters could grow
            del head["nodes"]
        text = msgspec.json.encode(tag_floats(head))
        (folder / RUN).write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    except OSError as error:
        raise ConfigError(str(folder), [Fault("", f"cannot write the run: {error.strerror or error}.")]) from error
    return folder


def read_run(folder: Path | str) -> Recording:
    """The run that `write_run` left in a folder."""
    folder = Path(folder)
    run = _read_head(folder)
    faults: list[Fault] = []
    tables: dict[str, pl.DataFrame] = {}
    for name, schema in TABLES.items():
        try:
            tables[name] = _read_table(folder / f"{name}.parquet", schema, run.sha256.get(name, ""))
        except _TableError as error:
            faults.append(Fault(f"{name}.parquet", str(error)))
    if faults:
        raise ConfigError(str(folder), faults)
    return Recording(
        scenario=run.scenario,
        policy=run.policy,
        scaler=run.scaler,
        seed=run.seed,
        parameters=run.parameters,
        point=run.point,
        engine=run.engine,
        warmup_s=run.warmup_s,
        duration_s=run.duration_s,
        end_s=run.end_s,
        cluster=run.cluster,
        refusals=run.refusals,
        stale_events=run.stale_events,
        device_memory=run.device_memory,
        nodes=run.nodes,
        decision_s=run.measured.decision_s,
        run_wall_s=run.measured.run_wall_s,
        requests=tables["requests"],
        invocations=tables["invocations"],
        instances=tables["instances"],
    )


def results_json(
    scenario: str, summaries: Iterable[Summary], *, warnings: Sequence[str] | None = None
) -> dict[str, object]:
    """What `simulate --json` prints: the scenario's name, one entry per run, and the warnings where these are kept."""
    values: dict[str, object] = {"scenario": scenario, "results": [summary.as_json() for summary in summaries]}
    return values if warnings is None else {**values, "warnings": list(warnings)}


class _TableError(Exception):
    """One table cannot be read; the text says why."""


def _head(recording: Recording, digests: dict[str, str]) -> _Run:
    return _Run(
        format=FORMAT,
        version=_version(),
        scenario=recording.scenario,
        policy=recording.policy,
        scaler=recording.scaler,
        seed=recording.seed,
        parameters=dict(recording.parameters),
        point=dict(recording.point),
        engine=recording.engine,
        warmup_s=recording.warmup_s,
        duration_s=recording.duration_s,
        end_s=recording.end_s,
        cluster=recording.cluster,
        refusals=recording.refusals,
        stale_events=recording.stale_events,
        device_memory=recording.device_memory,
        nodes=recording.nodes,
        sha256=digests,
        measured=_Measured(run_wall_s=recording.run_wall_s, decision_s=recording.decision_s),
    )


def _read_head(folder: Path) -> _Run:
    try:
        data = (folder / RUN).read_bytes()
    except OSError as error:
        why = f"{RUN} cannot be read ({error.strerror or error})"
        what = f"no run is here: {why}. `fairlead simulate --out` and `fairlead serve` write runs."
        if (folder / "runs").is_dir():  # the state folder of a gateway
            what += f" Those of this folder are in {folder / 'runs'}."
        raise ConfigError(str(folder), [Fault("", what)]) from error
    try:
        values = untag_floats(msgspec.json.decode(data))
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            what = f"format must be {FORMAT}; got {found}. Another version of Fairlead wrote it, or it is no run."
            raise ConfigError(str(folder / RUN), [Fault("", what)])
        return msgspec.convert(values, _Run)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(str(folder / RUN), [Fault("", f"not the head of a run: {error}")]) from error


def _read_table(path: Path, schema: Mapping[str, type[pl.DataType]], digest: str) -> pl.DataFrame:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _TableError(f"cannot be read: {error.strerror or error}.") from error
    if sha256(data).hexdigest() != digest:
        raise _TableError(f"is cut short, damaged or of another run: its digest is not the one in {RUN}.")
    try:
        # Through memory: as a path it would be a pattern, in which brackets and stars have a meaning.
        table = pl.read_parquet(BytesIO(data))
    except pl.exceptions.PolarsError as error:
        raise _TableError(f"is no Parquet table: {str(error).splitlines()[0]}") from error
    if dict(table.schema) != dict(pl.Schema(schema)):
        raise _TableError(f"must have the columns {', '.join(schema)}; got {', '.join(table.columns) or 'none'}.")
    return table


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = BytesIO()
    # One chunk and fixed groups: how the rows were collected must not show in the file.
    table.rechunk().write_parquet(
        buffer, compression="zstd", compression_level=3, statistics=True, row_group_size=ROWS_PER_GROUP
    )
    return buffer.getvalue()


def _version() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:  # run from a source folder that was never installed
        return "unknown"
