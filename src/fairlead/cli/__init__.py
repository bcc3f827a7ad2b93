"""The command line: one module per command, loaded when it is asked for."""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from fairlead.cli.errors import guarded

__all__ = ["app", "main"]

COMMANDS = (
    "demo",
    "policies",
    "simulate",
    "plan",
    "league",
    "reproduce",
    "train",
    "profile",
    "trace",
    "serve",
    "agent",
    "load",
    "report",
    "replay",
    "explain",
    "logs",
    "top",
    "nodes",
    "monitor",
    "stress",
    "warmup",
    "models",
    "kaas",
)
"""Each is a module of this package, with a function of its name, or a group of commands."""


class Commands(TyperGroup):
    """Loads a command's module when the command is asked for, and turns what it raises into a message."""

    def list_commands(self, ctx: Any) -> list[str]:  # Any: Typer moved these types between versions
        """Every command, the first to try first."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None without one."""
        if cmd_name not in COMMANDS:
            for known in COMMANDS:  # Typer suggests near misses among those that are loaded
                self.get_command(ctx, known)
            return None
        if cmd_name not in self.commands:
            module = import_module(f"fairlead.cli.{cmd_name}")
            found = getattr(module, cmd_name)
            if isinstance(found, typer.Typer):  # a group, whose commands are guarded one by one
                self.commands[cmd_name] = get_command(found)
            else:
                single = typer.Typer(add_completion=False, rich_markup_mode=None)
                single.command(name=cmd_name, no_args_is_help=False)(guarded(found))
                self.commands[cmd_name] = get_command(single)
        return self.commands[cmd_name]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        try:
            number = version("fairlead")
        except PackageNotFoundError:  # run from a source folder that was never installed
            number = "(not installed)"
        typer.echo(f"fairlead {number}")
        raise typer.Exit


@app.callback()
def fairlead(
    is_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve workflows of functions within a latency objective; simulate and compare the policies that decide.

    Start with `fairlead demo`.
    """


def main() -> None:
    """Run the command line; ends the process with 0 (done), 1 (failed or not met) or 2 (wrong use)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a sign gets a question mark, not a failure
            stream.reconfigure(errors="replace")
    app(prog_name="fairlead")
