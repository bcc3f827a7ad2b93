"""Objects in a store that a URL names: put, get, and what is said where the store refuses.

`file:///folder` is a folder, `s3://bucket/prefix` a bucket, whose endpoint, region and credentials come from the usual
AWS variables of the environment. An object appears when it is whole: a file is renamed into place, and S3 shows no half
of a put. A process keeps its connections to a bucket open.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import obstore
from obstore import exceptions as refusals
from obstore.store import S3Store

from fairlead.video.errors import StoreError
from fairlead.video.files import write_whole

STORE_VARIABLE = "FAIRLEAD_STORE"
"""The environment variable that names the store."""

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


def put_object(to: str, name: str, data: bytes) -> str:
    """Keep an object in a store, in place of one of the same name; gives its URL."""
    if urlsplit(to).scheme == "file":
        folder = _folder(to)
        try:
            write_whole(folder / name, data)
        except OSError as error:
            raise StoreError(
                f"The store {to} refuses: {error.strerror or error}. Make the folder writable (chmod u+w {folder}), "
                f"or name another: {STORE_VARIABLE}=file:///FOLDER"
            ) from None
        return (folder / name).absolute().as_uri()
    with _asking(to, "written"):
        obstore.put(_bucket(to.rstrip("/"), _access()), name, data, use_multipart=False)
    return f"{to.rstrip('/')}/{name}"


def get_object(to: str, url: str) -> bytes:
    """The object at a URL, which must be in this store: a URL from elsewhere is refused."""
    root = _folder(to).absolute().as_uri() if urlsplit(to).scheme == "file" else to.rstrip("/")
    name = url.removeprefix(f"{root}/")
    if name == url or ".." in unquote(name).split("/"):
        raise StoreError(f"{url} is no object of the store {root}.")
    if urlsplit(to).scheme == "file":
        try:
            return (_folder(to) / unquote(name)).read_bytes()
        except OSError as error:
            raise StoreError(f"{url} cannot be read: {error.strerror or error}.") from None
    with _asking(to, "read"):
        return bytes(obstore.get(_bucket(to.rstrip("/"), _access()), name).bytes())


def _folder(to: str) -> Path:
    return Path(url2pathname(unquote(urlsplit(to).path)))


def _access() -> tuple[tuple[str, str], ...]:
    """What the environment says of buckets: other variables, another client."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))


@cache
def _bucket(to: str, _access: tuple[tuple[str, str], ...]) -> S3Store:
    return S3Store.from_url(
        to,
        client_options={"allow_http": _endpoint().startswith("http://"), "timeout": timedelta(seconds=20)},
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
    )


def _endpoint() -> str:
    return next((os.environ[key] for key in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT") if os.environ.get(key)), "")


@contextmanager
def _asking(to: str, done: str) -> Iterator[None]:
    """Says what a bucket refuses as a StoreError."""
    endpoint, bucket = _endpoint(), urlsplit(to).netloc
    try:
        yield
    except (refusals.PermissionDeniedError, refusals.UnauthenticatedError):
        raise StoreError(
            f"The store {to} refuses to be {done}: permission denied. Set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY to a key that may get and put objects there, {_TO_FILES}"
        ) from None
    except (refusals.NotFoundError, FileNotFoundError):
        what = "no such object, or no" if done == "read" else "no"
        raise StoreError(
            f"There is {what} bucket {bucket!r}. Make it with: aws s3 mb s3://{bucket}, {_TO_FILES}"
        ) from None
    except (refusals.BaseError, ValueError, OSError) as error:
        where = f" at {endpoint}" if endpoint else ""
        raise StoreError(
            f"The store {to} cannot be {done}{where}: {_first_line(error)}. Check AWS_ENDPOINT_URL, AWS_REGION and "
            f"the AWS credentials, {_TO_FILES}"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")
