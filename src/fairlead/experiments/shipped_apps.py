"""Where the apps of the repository are: they come with a clone of it, not with the installed package."""

import os
from pathlib import Path

from fairlead.errors import FairleadError

FOLDER_VARIABLE = "FAIRLEAD_APPS"
"""The environment variable that names the folder with the apps; without it, `examples/apps` of this checkout."""

_CHECKOUT = Path(__file__).resolve().parents[3] / "examples" / "apps"


def app_folder(name: str) -> Path:
    """The folder of a shipped app. FairleadError, with how to get it, where there is none."""
    given = os.environ.get(FOLDER_VARIABLE)
    folder = (Path(given) if given else _CHECKOUT) / name
    if not (folder / "app.py").is_file():
        raise FairleadError(
            f"The app {name!r} is not in {folder.parent}: apps come with a clone of the repository, not with the "
            f"package. Clone it, and name the folder with the apps: export {FOLDER_VARIABLE}=CLONE/examples/apps"
        )
    return folder.resolve()
