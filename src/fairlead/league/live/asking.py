"""One request to each workflow of a served app, to know whether it answers before it is loaded."""

import json
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fairlead.calibrate.serving import ServingError
from fairlead.league.live.app import LiveApp

LIMIT_S = 60.0
"""How long one answer may take."""

_MOST_BYTES = 1 << 16


def ask_once(app: LiveApp, url: str) -> None:
    """Call every workflow with its example, one after the other.

    Raises:
        ServingError: One does not answer; the error says which, why, and what to do.
    """
    for call in app.calls():
        headers = {"Content-Type": "application/json", "X-Deadline-Ms": f"{LIMIT_S * 1e3:.0f}"}
        request = Request(f"{url.rstrip('/')}{call.path}", data=call.body, headers=headers)
        try:
            with urlopen(request, timeout=LIMIT_S) as answer:
                answer.read(_MOST_BYTES)
        except HTTPError as error:
            raise _unanswered(app, call.name, f"{error.code}, {_message(error.read(_MOST_BYTES))}") from error
        except (URLError, TimeoutError, ConnectionError) as error:
            raise _unanswered(app, call.name, str(getattr(error, "reason", None) or error)) from error


def _unanswered(app: LiveApp, workflow: str, why: str) -> ServingError:
    return ServingError(
        f"{app.path}: workflow {workflow!r} does not answer its example: {why.rstrip('.')}. If it needs another "
        "program, such as an object store, start that first; if it has no example, give it one in the app file."
    )


def _message(data: bytes) -> str:
    """What the body of a refusal says."""
    try:
        error = json.loads(data)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace")
