"""The apps of the repository, which come with a clone of it and not with the installed package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fairlead.errors import FairleadError

APPS = "FAIRLEAD_APPS"
"""The environment variable that names the folder with the apps, where it is not found otherwise."""

_CHECKOUT = Path(__file__).resolve().parents[3] / "examples" / "apps"  # of an editable install


class MissingAppError(FairleadError):
    """The shipped apps are not here."""


def app_folder(name: str) -> Path:
    """The folder of a shipped app: below FAIRLEAD_APPS, the current folder, or the clone that is installed.

    Raises:
        MissingAppError: It is in none of them.
    """
    given = os.environ.get(APPS)
    places = [Path(given)] if given else [Path("examples", "apps"), _CHECKOUT]
    for place in places:
        if (place / name / "app.py").is_file():
            return (place / name).resolve()
    looked = " or ".join(str(place / name) for place in places)
    raise MissingAppError(
        f"The app {name!r} was not found in {looked}. Apps come with a clone of the repository, not with the package: "
        f"run this in a clone, or name its folder of apps: export {APPS}=CLONE/examples/apps"
    )


def profiled_copy(name: str, folder: Path, *, budget: str = "30s") -> Path:
    """Copies a shipped app below `folder` and profiles the copy, so that the clone stays as it is; gives the copy.

    Raises:
        MissingAppError: It is not here.
        FairleadError: It cannot be profiled.
    """
    copy = folder / name
    shutil.copytree(app_folder(name), copy, ignore=shutil.ignore_patterns("__pycache__", "*.profile.json"))
    command = [sys.executable, "-m", "fairlead", "profile", str(copy), "--budget", budget, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FairleadError(f"The app {name!r} could not be profiled: {done.stderr.strip()[-500:]}")
    return copy
