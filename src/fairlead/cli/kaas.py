"""`fairlead kaas`: kernel graphs as files, each command in a module of its own."""

import typer

from fairlead.cli.errors import guarded
from fairlead.cli.kaas_check import check
from fairlead.cli.kaas_export import export
from fairlead.cli.kaas_run import run

kaas = typer.Typer(
    name="kaas",
    help="Make, check and try kernel graphs, which apps run on OpenCL and CUDA devices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
for command in (export, check, run):
    kaas.command()(guarded(command))
