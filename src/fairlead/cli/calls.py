"""What `fairlead load` sends where: the workflow's address, its inputs, and the deadline that it has by itself."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from fairlead.cli.asking import Gateway, GatewayError
from fairlead.cli.errors import UsageError
from fairlead.client.bodies import JSON, RAW
from fairlead.errors import AmbiguousNameError, UnknownNameError
from fairlead.load import Target

MAX_BODY_BYTES = 64 * 2**20
WORKFLOWS = "/v1/workflows/"


class _App(msgspec.Struct):
    name: str
    workflows: list[str]


class _Apps(msgspec.Struct):
    apps: list[_App]


class _Workflow(msgspec.Struct):
    name: str
    slo_s: float | None = None
    example: str | None = None


class _Manifest(msgspec.Struct):
    workflows: list[_Workflow]


class _Detail(msgspec.Struct):
    manifest: _Manifest


@dataclass(frozen=True)
class Call:
    """An address, the bodies to send to it in turn, and the latency objective of the workflow behind it, if any.

    `workflow` is its full name where it is known to be a workflow of a gateway.
    """

    url: str
    bodies: tuple[bytes, ...]
    workflow: str | None = None
    objective_s: float | None = None
    content_type: str = JSON


def workflow_call(gateway: Gateway, workflow: str | None, inputs: Sequence[object]) -> Call:
    """The call of a workflow of a gateway, which may be left out if there is one; without inputs, with its example."""
    full, found = _find(gateway, workflow)
    base, path, kind = gateway.url.rstrip("/"), workflow_path(full), JSON
    bodies = tuple(json.dumps({"input": value}).encode() for value in inputs)
    if not bodies:
        example = _example(gateway, found)
        if isinstance(example, bytes):  # JSON has no bytes: they are sent as they are
            path, bodies, kind = f"/function/{quote(full)}", (example,), RAW
        else:
            bodies = (msgspec.json.encode({"input": example}),)
    return Call(base + path, bodies, full, _objective(found), kind)


def workflow_path(full: str) -> str:
    """Where a workflow is called with JSON."""
    return WORKFLOWS + quote(full)


def plain_call(gateway: Gateway, target: Target, body: bytes) -> Call:
    """The call of an address with its own path; of a gateway's workflow, the objective is asked for."""
    name = unquote(target.path.removeprefix(WORKFLOWS))
    if not target.path.startswith(WORKFLOWS) or "/" in name:
        return Call(gateway.url, (body,))
    asked = Gateway(url=target.origin, token=gateway.token, cacert=gateway.cacert)
    try:
        full, found = _find(asked, name)
        return Call(gateway.url, (body,), full, _objective(found))
    except (GatewayError, UnknownNameError):  # another server with such a path, or one that refuses in its own words
        return Call(gateway.url, (body,))


def _find(gateway: Gateway, workflow: str | None) -> tuple[str, _Workflow]:
    served = {
        f"{app.name}.{name}": (app.name, name) for app in gateway.ask("/v1/apps", _Apps).apps for name in app.workflows
    }
    if workflow is None and len(served) != 1:
        listed = ", ".join(sorted(served)) or "none"
        raise UsageError(f"{gateway.url} serves {len(served)} workflows; say --workflow NAME: {listed}.")
    chosen = [full for full, (_, name) in served.items() if workflow in (None, full, name)]
    if not chosen:
        raise UnknownNameError("workflow", workflow or "", served)
    if len(chosen) > 1:
        raise AmbiguousNameError("workflow", workflow or "", chosen)
    app, name = served[chosen[0]]
    detail = gateway.ask(f"/v1/apps/{quote(app)}", _Detail)
    return chosen[0], next((one for one in detail.manifest.workflows if one.name == name), _Workflow(name))


def _objective(workflow: _Workflow) -> float | None:
    slo_s = workflow.slo_s
    return slo_s if slo_s is not None and 0 < slo_s < inf else None


def _example(gateway: Gateway, workflow: _Workflow) -> object:
    """The value that the app itself gives to try the workflow with; null without."""
    try:
        packed = workflow.example
        value: object = None if packed is None else msgspec.msgpack.decode(base64.b64decode(packed))
        msgspec.json.encode(value)
        return value
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        what = f"the example of {workflow.name} cannot be read: {error}"
        raise GatewayError(f"{gateway.url}: {what}. Give an input with --input.") from error


def read_inputs(given: Sequence[str], file: Path | None) -> list[object]:
    """The values of `--input`, or one per line of the file of `--inputs`."""
    if file is None:
        return [_json(f"--input {text[:40]!r}", read_text("--input", text)) for text in given]
    if given:
        raise UsageError("--input and --inputs both say what is sent; leave one out.")
    lines = read_file("--inputs", file, MAX_BODY_BYTES).split(b"\n")
    values = [_json(f"{file}, line {number}:", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not values:
        raise UsageError(f"--inputs {file}: holds no input; it takes one JSON value per line.")
    return values


def read_text(option: str, text: str) -> bytes:
    """The text that was typed, or the contents of the file that was named with @."""
    if text.startswith("@"):
        return read_file(option, Path(text[1:]), MAX_BODY_BYTES)
    return text.encode(errors="surrogateescape")


def read_file(option: str, file: Path, most: int) -> bytes:
    """The contents of a file that an option names."""
    try:
        with file.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {file}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > most:
        raise UsageError(f"{option} {file}: is larger than {most // 2**10:,} KiB.")
    return data


def _json(where: str, data: bytes) -> object:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} must be JSON; got {data[:40]!r}: {error}.") from error


def _refuse(constant: str) -> object:
    raise ValueError(f"JSON has no {constant}")
