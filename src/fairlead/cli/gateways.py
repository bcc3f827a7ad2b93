"""Gateways that run on this machine: where their state is, and what they say."""

import http.client
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from fairlead.cli.errors import UsageError
from fairlead.errors import FairleadError

STATE = Path(".fairlead")
TOKEN = "FAIRLEAD_TOKEN"
_FILE = "gateway.json"
_TIMEOUT_S = 5.0
_MOST_BYTES = 64 << 20


class GatewayError(FairleadError):
    """A gateway does not answer, or not as one should."""


def gateways(state: Path | None = None) -> dict[Path, str]:
    """URLs by folder of state: the one named, or all in `.fairlead`; the newest first."""
    folders = [state] if state is not None else [path for path in STATE.glob("*") if path.is_dir()]
    found: list[tuple[float, Path, str]] = []
    for folder in folders:
        try:
            told = json.loads((folder / _FILE).read_bytes())
            found.append(((folder / _FILE).stat().st_mtime, folder, str(told["url"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # nothing is served from there
    return {folder: url for _, folder, url in sorted(found, key=lambda one: one[0], reverse=True)}


def find_gateway(url: str | None, state: Path | None = None) -> str:
    """The URL that was named, or that of the gateway which was started last here."""
    if url is not None:
        return url
    found = gateways(state)
    if not found:
        raise UsageError(f"No gateway is served from here: no {_FILE} in {state or STATE / '*'}. Name it with --url.")
    return next(iter(found.values()))


def state_folders(state: Path | None, url: str | None) -> list[Path]:
    """The folders of state that are meant, by name or by the gateway's URL; all in `.fairlead` without either."""
    if state is not None:
        if not state.is_dir():
            raise UsageError(f"--state {state}: there is no such folder.")
        return [state]
    if url is not None:
        found = [folder for folder, known in gateways().items() if known.rstrip("/") == url.rstrip("/")]
        if not found:
            raise UsageError(f"--url {url}: no folder in {STATE} is served there. Name it with --state.")
        return found
    return sorted(path for path in STATE.glob("*") if path.is_dir())


def get(url: str, path: str, *, token: str | None = None) -> bytes:
    """The body of an answer of 200. Without a token, the environment's is used. GatewayError says what went wrong."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {url}: must be like http://127.0.0.1:8000.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    token = token or os.environ.get(TOKEN)
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--url {url}: {error}.") from error
    connection = kind(parts.hostname, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers=_headers(token))
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise GatewayError(f"{url}: does not answer: {error or type(error).__name__}.") from error
    finally:
        connection.close()
    if answer.status == 401:
        hint = f"the token in {TOKEN} is not its own" if token else f"it wants a token; set {TOKEN}"
        raise GatewayError(f"{url}{path}: {hint}.")
    if answer.status != 200:
        raise GatewayError(f"{url}{path}: answered {answer.status} {answer.reason}.")
    return body


def _headers(token: str | None) -> dict[str, str]:
    return {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
