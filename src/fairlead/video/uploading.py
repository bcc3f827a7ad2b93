"""The uploader: what was found in a video, as one JSON object in an object store that a URL names.

`file:///folder` is a folder (the default: `video-results` in the working folder), `s3://bucket/prefix` a bucket, whose
endpoint, region and credentials come from the usual AWS variables of the environment. An object appears when it is
whole: a file is renamed into place, and S3 shows no half of a put.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import msgspec
import obstore
from obstore import exceptions as refusals
from obstore.store import S3Store

from fairlead.video.errors import StoreError
from fairlead.video.files import write_whole

STORE_VARIABLE = "FAIRLEAD_STORE"
"""The environment variable that names the store."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TO_FILES = f"or write to files: {STORE_VARIABLE}=file:///FOLDER"


def store_url() -> str:
    """The store that FAIRLEAD_STORE names, else a folder in the working folder."""
    return os.environ.get(STORE_VARIABLE) or (Path.cwd() / "video-results").as_uri()


_CREDENTIALS = (  # each is enough, with what belongs to it
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE",),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ("AWS_METADATA_ENDPOINT",),
    ("AWS_SKIP_SIGNATURE",),
)


def check_store(to: str | None = None) -> None:
    """StoreError where a store (without one, `store_url()`) can never be written; asks nobody.

    Without credentials the library would ask a service that only the machines of a cloud have, and wait for it: who
    wants that names it (AWS_METADATA_ENDPOINT).
    """
    to = to or store_url()
    parts = urlsplit(to)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return
    if parts.scheme != "s3" or not parts.netloc:
        folder = "video-results" if parts.scheme else to
        raise StoreError(
            f"The store {to!r} is none that can be written. Name a folder, such as "
            f"{STORE_VARIABLE}={Path(folder).absolute().as_uri()}, or a bucket: {STORE_VARIABLE}=s3://BUCKET/PREFIX"
        )
    if not any(all(os.environ.get(name) for name in names) for names in _CREDENTIALS):
        raise StoreError(
            f"The store {to} needs credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on a machine that has "
            f"a role in its cloud, AWS_METADATA_ENDPOINT=http://169.254.169.254), {_TO_FILES}"
        )


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
    parts = urlsplit(to)
    if parts.scheme == "file":
        return _to_folder(to, Path(url2pathname(unquote(parts.path))), f"{name}.json", data)
    return _to_bucket(to, f"{name}.json", data)


def _to_folder(to: str, folder: Path, name: str, data: bytes) -> str:
    try:
        write_whole(folder / name, data)
    except OSError as error:
        raise StoreError(
            f"The store {to} refuses: {error.strerror or error}. Make the folder writable (chmod u+w {folder}), "
            f"or name another: {STORE_VARIABLE}=file:///FOLDER"
        ) from None
    return (folder / name).absolute().as_uri()


def _to_bucket(to: str, name: str, data: bytes) -> str:
    endpoint = next((os.environ[key] for key in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT") if os.environ.get(key)), "")
    bucket = urlsplit(to).netloc
    try:
        store = S3Store.from_url(
            to.rstrip("/"),
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": timedelta(seconds=20)},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
        )
        obstore.put(store, name, data, use_multipart=False)
    except (refusals.PermissionDeniedError, refusals.UnauthenticatedError):
        raise StoreError(
            f"The store {to} refuses to be written: permission denied. Set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY to a key that may put objects there, {_TO_FILES}"
        ) from None
    except (refusals.NotFoundError, FileNotFoundError):
        raise StoreError(f"There is no bucket {bucket!r}. Make it with: aws s3 mb s3://{bucket}, {_TO_FILES}") from None
    except (refusals.BaseError, ValueError, OSError) as error:
        where = f" at {endpoint}" if endpoint else ""
        raise StoreError(
            f"The store {to} cannot be written{where}: {_first_line(error)}. Check AWS_ENDPOINT_URL, AWS_REGION and "
            f"the AWS credentials, {_TO_FILES}"
        ) from None
    return f"{to.rstrip('/')}/{name}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")
