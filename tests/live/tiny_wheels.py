"""Wheels of a tiny package in two versions, made on this disk, for tests of requirements."""

import zipfile
from pathlib import Path


def wheel(folder: Path, version: int) -> str:
    """A requirement of a tiny package that knows its version, as a wheel on this disk."""
    path = folder / f"tiny_part-{version}.0-py3-none-any.whl"
    about = f"tiny_part-{version}.0.dist-info"
    texts = {
        "tiny_part.py": f"VERSION = {version}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny-part\nVersion: {version}.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, text in texts.items():
            file.writestr(name, text)
    return f"tiny-part @ {path.as_uri()}"
