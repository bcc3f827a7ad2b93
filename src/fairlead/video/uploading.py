"""The uploader: what was found in a video, as one JSON object in an object store."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.video.objects import check_store, put_object, store_url

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def uploader(result: Mapping[str, Any], to: str | None = None, name: str | None = None) -> str:
    """Keep a result in a store, and give its URL.

    Args:
        result: Plain values.
        to: The URL of the store; without, `store_url()`.
        name: Of the object, without its ending. Without one it is made of the content, so a result that is written
            again, say by a second attempt, is the same object.
    """
    data = msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"
    name = name or f"video-{hashlib.sha256(data).hexdigest()[:16]}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a result may have letters, digits, '.', '_' and '-'; got {name!r}.")
    to = to or store_url()
    check_store(to)
    return put_object(to, f"{name}.json", data)
