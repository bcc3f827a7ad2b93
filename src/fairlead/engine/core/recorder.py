"""The recorder: rows in, tables out. Rows are tuples in the order of the schema, turned into columns in blocks."""

from collections.abc import Mapping

import polars as pl

from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA

_BLOCK = 1 << 15  # rows; millions of Python tuples would take too much memory


class TableRecorder:
    """One table: append to `rows`, and `trim` now and then."""

    __slots__ = ("_blocks", "_schema", "rows")

    def __init__(self, schema: Mapping[str, type[pl.DataType]]) -> None:
        self._schema = dict(schema)
        self._blocks: list[pl.DataFrame] = []
        self.rows: list[tuple[object, ...]] = []

    def trim(self) -> None:
        """Turn the rows into columns."""
        if self.rows:
            columns = zip(*self.rows, strict=True)
            series = [
                pl.Series(name, column, dtype=kind)
                for (name, kind), column in zip(self._schema.items(), columns, strict=True)
            ]
            self._blocks.append(pl.DataFrame(series))
            self.rows.clear()

    def table(self) -> pl.DataFrame:
        """Everything recorded so far."""
        self.trim()
        if not self._blocks:
            return pl.DataFrame(schema=self._schema)
        self._blocks = [pl.concat(self._blocks, rechunk=True)]
        return self._blocks[0]


class Recorder:
    """The three tables of a run."""

    __slots__ = ("instances", "invocations", "requests")

    def __init__(self) -> None:
        self.requests = TableRecorder(REQUEST_SCHEMA)
        self.invocations = TableRecorder(INVOCATION_SCHEMA)
        self.instances = TableRecorder(INSTANCE_SCHEMA)

    def instance_table(self) -> pl.DataFrame:
        """The instances, with how long each was busy running batches."""
        batches = self.invocations.table().unique("batch", maintain_order=True)
        busy = batches.group_by("instance").agg(
            busy=(pl.col("end") - pl.col("start") - pl.col("cold_s")).clip(lower_bound=0).sum()
        )
        joined = self.instances.table().join(busy, on="instance", how="left", maintain_order="left")
        return joined.with_columns(busy_s=pl.col("busy").fill_null(0.0)).drop("busy")

    def trim(self) -> None:
        """Bound the memory that rows take; cheap to call often."""
        for table in (self.requests, self.invocations, self.instances):
            if len(table.rows) >= _BLOCK:
                table.trim()
