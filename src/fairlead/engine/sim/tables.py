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


class Tables:
    """The three tables of a run; a recorder for the controller's books."""

    __slots__ = ("_instances", "_invocations", "_requests")

    def __init__(self) -> None:
        self._requests = TableRecorder(REQUEST_SCHEMA)
        self._invocations = TableRecorder(INVOCATION_SCHEMA)
        self._instances = TableRecorder(INSTANCE_SCHEMA)

    @property
    def requests(self) -> list[tuple[object, ...]]:
        """Rows that are not yet columns, as are the others."""
        return self._requests.rows

    @property
    def invocations(self) -> list[tuple[object, ...]]:
        """One per attempt."""
        return self._invocations.rows

    @property
    def instances(self) -> list[tuple[object, ...]]:
        """One per instance."""
        return self._instances.rows

    def request_table(self) -> pl.DataFrame:
        """The requests."""
        return self._requests.table()

    def invocation_table(self) -> pl.DataFrame:
        """The attempts."""
        return self._invocations.table()

    def instance_table(self) -> pl.DataFrame:
        """The instances, with how long each was busy running batches."""
        return with_busy(self._instances.table(), self._invocations.table())

    def trim(self) -> None:
        """Bound the memory that rows take; cheap to call often."""
        for table in (self._requests, self._invocations, self._instances):
            if len(table.rows) >= _BLOCK:
                table.trim()


def with_busy(instances: pl.DataFrame, invocations: pl.DataFrame) -> pl.DataFrame:
    """The instances, with how long each was busy running batches."""
    batches = invocations.unique("batch", maintain_order=True)
    busy = batches.group_by("instance").agg(
        busy=(pl.col("end") - pl.col("start") - pl.col("cold_s")).clip(lower_bound=0).sum()
    )
    joined = instances.join(busy, on="instance", how="left", maintain_order="left")
    return joined.with_columns(busy_s=pl.col("busy").fill_null(0.0)).drop("busy")
