"""The recorder: rows in, tables out. Rows are tuples in the order of the schema, turned into columns in blocks."""

from collections.abc import Mapping

import polars as pl

from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA

_BLOCK = 1 << 15


class TableRecorder:
    """One table. Blocks bound the memory that millions of Python rows would take."""

    __slots__ = ("_blocks", "_schema", "rows")

    def __init__(self, schema: Mapping[str, type[pl.DataType]]) -> None:
        self._schema = dict(schema)
        self._blocks: list[pl.DataFrame] = []
        self.rows: list[tuple[object, ...]] = []

    def add(self, row: tuple[object, ...]) -> None:
        self.rows.append(row)
        if len(self.rows) >= _BLOCK:
            self._flush()

    def table(self) -> pl.DataFrame:
        """Everything recorded so far."""
        self._flush()
        if not self._blocks:
            return pl.DataFrame(schema=self._schema)
        self._blocks = [pl.concat(self._blocks, rechunk=True)]
        return self._blocks[0]

    def _flush(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            self._blocks.append(
                pl.DataFrame(
                    [
                        pl.Series(name, column, dtype=kind)
                        for (name, kind), column in zip(self._schema.items(), columns, strict=True)
                    ]
                )
            )
            self.rows.clear()


class Recorder:
    """The three tables of a run."""

    def __init__(self) -> None:
        self.requests = TableRecorder(REQUEST_SCHEMA)
        self.invocations = TableRecorder(INVOCATION_SCHEMA)
        self.instances = TableRecorder(INSTANCE_SCHEMA)
