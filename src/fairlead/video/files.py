"""Files that are there whole or not at all."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears, or takes the place of another, only when it is whole. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft: Path | None = None
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=".draft-", delete=False) as file:
            draft = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except BaseException:  # also Ctrl-C: nothing half-written is left
        if draft is not None:
            draft.unlink(missing_ok=True)
        raise
