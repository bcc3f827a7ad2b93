"""What a run comes to: numbers, files, tables, pages and traces."""

from fairlead.report.files import read_run, results_json, write_run
from fairlead.report.html import render_html, write_html
from fairlead.report.metrics import (
    Aggregate,
    Estimate,
    Quantiles,
    Summary,
    WorkflowSummary,
    aggregate,
    estimate,
    summarise,
)
from fairlead.report.table import comparison_table, result_tables, sweep_table
from fairlead.report.trace import write_trace

__all__ = [
    "Aggregate",
    "Estimate",
    "Quantiles",
    "Summary",
    "WorkflowSummary",
    "aggregate",
    "comparison_table",
    "estimate",
    "read_run",
    "render_html",
    "result_tables",
    "results_json",
    "summarise",
    "sweep_table",
    "write_html",
    "write_run",
    "write_trace",
]
