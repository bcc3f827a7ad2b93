"""A real, small file system for tests of a full disk."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size, such as "4m", that holds nothing else; the test is skipped where none can be made."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "fairlead-test", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield folder
    finally:
        if subprocess.run(["umount", str(folder)], check=False).returncode:
            subprocess.run(["umount", "-l", str(folder)], check=True)
            pytest.fail("a file on the small disk is still open")


def fill(file: Path) -> None:
    """Take all the space that is left."""
    with suppress(OSError), file.open("ab", buffering=0) as out:
        while True:
            out.write(bytes(4096))
