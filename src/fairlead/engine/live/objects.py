"""An object store for large values on their way between nodes: `file:///folder` or `s3://bucket/prefix`.

Objects are named by two numbers that the gateway gives, its epoch and a count, below a folder of its own. Nothing that
a function or an instance says becomes part of a name. Credentials are the gateway's and its agents'; instances have
none.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import msgspec

from fairlead.app.secrets import VALUES_KEY, VALUES_KEY_ID, VALUES_SESSION
from fairlead.errors import ConfigError, FairleadError, Fault, MissingExtraError

OURS = "fairlead-values"
"""The folder below the given URL; nothing outside it is read, written or deleted."""

_OWNER = re.compile(r"[0-9a-f]{16}")
_SEGMENT = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9._=+-]*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CONNECT_S, _SILENCE_S, _WHOLE_S = 3.0, 10.0, 300.0
_RETRIES, _RETRY_S = 2, 10.0
_PROBE = "probe"
_AT_ONCE = 1000  # objects that are deleted by one call


class StoreError(FairleadError):
    """The object store refuses, or cannot be reached."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """An object store, and what is needed to use it. Told to agents, never to instances; its text has no secrets."""

    url: str
    owner: str  # of the folder: one per state folder of a gateway
    endpoint: str = ""
    region: str = ""
    key_id: str = ""
    key: str = ""
    session: str = ""

    def __repr__(self) -> str:
        return f"Place({self.url!r})"

    def without_secrets(self, text: str) -> str:
        """The first line of a message, with credentials struck out."""
        line = (text.splitlines() or [""])[0][:300].rstrip(". ")
        for secret in (self.key, self.session, self.key_id):
            line = line.replace(secret, "***") if secret else line
        return line


def place_of(url: str, endpoint: str | None, owner: str, secrets: Mapping[str, str], region: str = "") -> Place:
    """Returns the store that a URL names, without connecting to it. ConfigError if the URL cannot name one."""
    faults = [*_url_faults(url), *_endpoint_faults(url, endpoint)]
    if not faults and urlsplit(url).scheme == "s3" and not (secrets.get(VALUES_KEY_ID) and secrets.get(VALUES_KEY)):
        what = f"needs credentials: set {VALUES_KEY_ID} and {VALUES_KEY}. AWS_ variables are left to functions."
        faults.append(Fault("", what))
    if faults:
        raise ConfigError(f"--values {url if '@' not in url else '(hidden)'}", faults)
    if urlsplit(url).scheme == "file":
        return Place(url.rstrip("/"), owner)
    region = region or "us-east-1"
    return Place(
        url.rstrip("/"),
        owner,
        (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/"),
        region,
        secrets[VALUES_KEY_ID],
        secrets[VALUES_KEY],
        secrets.get(VALUES_SESSION, ""),
    )


def owner_id(state: Path) -> str:
    """The name of a gateway's folder in object stores: made once, kept in its state folder. Raises StoreError."""
    file = state / "values.id"
    try:
        if not file.exists():
            draft = file.with_name("values.id.draft")
            draft.write_text(token_hex(8), encoding="ascii")
            draft.replace(file)
        found = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} cannot be kept: {error}") from None
    if not _OWNER.fullmatch(found):
        raise StoreError(f"{file} must hold 16 hexadecimal digits; delete it to have another made")
    return found


def _url_faults(url: str) -> list[Fault]:
    try:
        parts = urlsplit(url)
        hostname = parts.hostname
    except ValueError as error:
        return [Fault("", f"is no URL: {error}.")]
    if parts.query or parts.fragment or "@" in parts.netloc:
        return [
            Fault("", f"must have no user, query or fragment; credentials belong in {VALUES_KEY_ID} and {VALUES_KEY}.")
        ]
    segments = [unquote(segment) for segment in parts.path.strip("/").split("/")] if parts.path.strip("/") else []
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and segments and ".." not in segments:
        return []
    if parts.scheme == "s3" and hostname is not None and _BUCKET.fullmatch(parts.netloc):
        wrong = [segment for segment in segments if not _SEGMENT.fullmatch(segment)]
        return [Fault("", f"has a part that no prefix may have: {wrong[0]!r}.")] if wrong else []
    return [Fault("", "must be file:///FOLDER or s3://BUCKET/PREFIX.")]


def _endpoint_faults(url: str, endpoint: str | None) -> list[Fault]:
    if endpoint is None:
        return []
    parts = urlsplit(endpoint)
    if not url.startswith("s3:"):
        return [Fault("endpoint", "is for s3:// only.")]
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        return [Fault("endpoint", "must be https://HOST[:PORT], or http:// on this machine.")]
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        return [Fault("endpoint", "is on another machine, so it must be https://.")]
    return []


class Objects:
    """The objects of one gateway. MissingExtraError without the library `obstore`.

    All calls end within a bounded time and raise StoreError, whose text has no credentials.
    """

    def __init__(self, place: Place) -> None:
        if not _OWNER.fullmatch(place.owner) or _url_faults(place.url):
            raise StoreError("the folder of values in the object store has a name that it cannot have")
        try:
            self._library: Any = import_module("obstore")
            stores: Any = import_module("obstore.store")
            self._failures: Any = import_module("obstore.exceptions")
        except ImportError as error:
            raise MissingExtraError("An object store for values (--values)", "obstore", "values") from error
        self.place = place
        try:
            self._store = _folder(stores, place) if place.url.startswith("file:") else _bucket(stores, place)
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("opened", error) from None

    async def check(self) -> None:
        """StoreError unless objects can be written, and deleted again."""
        try:
            await self._library.put_async(self._store, _PROBE, b"fairlead")
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("written", error) from None
        await self.delete([_PROBE])

    async def put(self, name: str, file: Path) -> None:
        """Keep the bytes of a file; other readers see all of them or none."""
        try:
            await self._library.put_async(self._store, name, file)
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("written", error) from None

    async def get(self, name: str, size: int) -> bytes:
        """The bytes of an object, which must be this many."""
        try:
            found = await self._library.get_async(self._store, name)
            if found.meta["size"] != size:
                raise StoreError(f"the store {self.place.url} has {found.meta['size']} bytes in place of {size}")
            return bytes(await found.bytes_async())
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("read", error) from None

    async def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there are none to remove."""
        for begin in range(0, len(names), _AT_ONCE):
            try:
                await self._library.delete_async(self._store, list(names[begin : begin + _AT_ONCE]))
            except (FileNotFoundError, self._failures.NotFoundError):
                if begin + 1 < len(names):  # of several, the others may still be there
                    for name in names[begin : begin + _AT_ONCE]:
                        await self._delete_one(name)
            except (OSError, ValueError, self._failures.BaseError) as error:
                raise self._error("emptied", error) from None

    async def clear(self, keep: str = "") -> int:
        """Remove all objects of this gateway, except those whose names begin with `keep`; gives how many."""
        names: list[str] = []
        try:
            async for page in self._library.list(self._store):
                names += [found["path"] for found in page if not keep or not found["path"].startswith(keep)]
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("listed", error) from None
        await self.delete(names)
        return len(names)

    async def _delete_one(self, name: str) -> None:
        try:
            await self._library.delete_async(self._store, name)
        except (FileNotFoundError, self._failures.NotFoundError):
            pass
        except (OSError, ValueError, self._failures.BaseError) as error:
            raise self._error("emptied", error) from None

    def _error(self, done: str, error: Exception) -> StoreError:
        place, at = self.place, f" at {self.place.endpoint}" if self.place.endpoint else ""
        return StoreError(f"the store {place.url}{at} cannot be {done}: {place.without_secrets(str(error))}")


def _folder(stores: Any, place: Place) -> Any:
    folder = Path(url2pathname(unquote(urlsplit(place.url).path))) / OURS / place.owner
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)  # values may be read by this user only
    return stores.LocalStore(folder, automatic_cleanup=True)


def _bucket(stores: Any, place: Place) -> Any:
    credential = {
        "access_key_id": place.key_id,
        "secret_access_key": place.key,
        "token": place.session or None,
        "expires_at": None,
    }
    return stores.S3Store.from_url(
        f"{place.url}/{OURS}/{place.owner}",
        endpoint=place.endpoint,
        region=place.region,
        virtual_hosted_style_request=False,
        client_options={
            "allow_http": place.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "read_timeout": timedelta(seconds=_SILENCE_S),
            "timeout": timedelta(seconds=_WHOLE_S),
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        credential_provider=lambda: credential,  # not AWS_ variables, which belong to functions
    )
