"""What a run comes to: numbers, files, tables, pages and traces."""

from fairlead.report.files import read_run, results_json, write_run
from fairlead.report.metrics import Aggregate, Estimate, Quantiles, Summary, WorkflowSummary, aggregate, summarise
from fairlead.report.table import comparison_table, sweep_table

__all__ = [
    "Aggregate",
    "Estimate",
    "Quantiles",
    "Summary",
    "WorkflowSummary",
    "aggregate",
    "comparison_table",
    "read_run",
    "results_json",
    "summarise",
    "sweep_table",
    "write_run",
]
