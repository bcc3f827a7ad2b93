"""Open Inference Protocol v2: a workflow as a model.

One input tensor becomes the workflow's input, as nested lists; several become an object by name. An answer that is an
object gives one output per key, any other answer one output named "output".
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from fairlead.engine.live.gateway.bodies import deadline_s, parse_json, require_json, to_value
from fairlead.engine.live.gateway.calls import CALL_ERRORS, bare_answer
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem, retry_headers
from fairlead.engine.live.gateway.raw_tensors import HEADER, read_inputs, split, write
from fairlead.engine.live.gateway.replies import Headers, Reply, json_reply
from fairlead.engine.live.gateway.tensors import (
    ANY_OUTPUT,
    Made,
    Tensor,
    TensorMetadata,
    from_plain,
    inputs_of,
    require_room,
)
from fairlead.engine.live.gateway.version import VERSION as PACKAGE_VERSION
from fairlead.engine.live.values import Ending

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

VERSION = "1"


class WantedOutput(msgspec.Struct):
    """An output that is asked for; `parameters.binary_data` asks for raw bytes."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceRequest(msgspec.Struct):
    """What a model is asked. `parameters.deadline_ms` is the deadline, from now; other parameters are ignored.

    Fields that are not named here are ignored too: clients send some, such as `model_name`.
    """

    inputs: Annotated[list[Tensor], msgspec.Meta(min_length=1, max_length=1024)]
    id: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[WantedOutput] | None = None


class InferenceResponse(msgspec.Struct, omit_defaults=True):
    """What a model answered."""

    model_name: str
    model_version: str
    outputs: list[Tensor]
    id: str | None = None
    parameters: dict[str, Any] | None = None


class ModelMetadata(msgspec.Struct):
    """A workflow as a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(msgspec.Struct):
    """This server."""

    name: str
    version: str
    extensions: list[str]


class Live(msgspec.Struct):
    """Whether the server lives."""

    live: bool


class Ready(msgspec.Struct):
    """Whether the server takes requests."""

    ready: bool


class ModelReady(msgspec.Struct):
    """Whether a model takes requests."""

    name: str
    ready: bool


_requests = msgspec.json.Decoder(InferenceRequest)


async def server(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Name and version."""
    return json_reply(ServerMetadata("fairlead", PACKAGE_VERSION, ["binary_tensor_data"]))


async def live(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Alive, since it answers."""
    return json_reply(Live(True))


async def ready(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Whether every app takes requests."""
    is_ready = gateway.is_ready
    return json_reply(Ready(is_ready), *_status(is_ready))


def _status(is_ready: bool) -> tuple[int, Headers]:
    return (200, []) if is_ready else (503, retry_headers(1.0))


async def model(gateway: "Gateway", exchange: Exchange) -> Reply:
    """A workflow as a model."""
    name = _model(gateway, exchange)
    _, spec = gateway.host.workflow(name)
    inputs = inputs_of(spec.example)
    return json_reply(ModelMetadata(name, [VERSION], "fairlead_workflow", inputs, [ANY_OUTPUT]))


async def model_ready(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Whether a workflow takes requests."""
    name = _model(gateway, exchange)
    is_ready = gateway.is_ready
    return json_reply(ModelReady(name, is_ready), *_status(is_ready))


async def infer(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Run a workflow on tensors."""
    name = _model(gateway, exchange)
    body, raw = _read(exchange, gateway.settings.max_containers)
    require_room(body.inputs, gateway.settings.max_containers)
    ticket, ending = await gateway.intake.run(
        name,
        to_value(_input(body.inputs, raw)),
        deadline_s=deadline_s(exchange, _deadline_ms(body.parameters), None),
        budget_usd=None,
        connection=exchange.connection,
        trace=exchange.traceparent,
    )
    return await bare_answer(
        gateway.host, exchange, ticket, ending, lambda given: _reply(name, body, ending, given), form="tensor"
    )


def _reply(model: str, body: InferenceRequest, ending: Ending, given: object) -> Reply:
    """What the workflow gave, as tensors; raw ones follow the JSON."""
    wanted = _wanted(_outputs(given, body.inputs), body)
    written = [write(tensor, is_raw=is_raw) for tensor, is_raw in wanted]
    response = InferenceResponse(
        model_name=model,
        model_version=VERSION,
        outputs=[tensor for tensor, _ in written],
        id=body.id,
        parameters={"latency_ms": ending.latency_s * 1e3, "in_time": ending.is_in_time},
    )
    reply = json_reply(response)
    if not any(is_raw for _, is_raw in wanted):
        return reply
    header = (HEADER, b"%d" % len(reply.body))
    return Reply(200, b"".join((reply.body, *(raw for _, raw in written))), [header], b"application/octet-stream")


def _read(exchange: Exchange, max_containers: int) -> tuple[InferenceRequest, bytes]:
    """The request, and the raw bytes after it. Some clients send no content type, or that of bytes also for JSON."""
    kind = exchange.headers.get(b"content-type", b"")
    if kind not in (b"", b"application/octet-stream"):
        require_json(kind)
    head, raw = split(exchange.body, exchange.headers.get(HEADER))
    return parse_json(head, _requests, max_containers), raw


def _model(gateway: "Gateway", exchange: Exchange) -> str:
    name, *version = exchange.names
    gateway.intake.full_name(name)
    if version and version[0] != VERSION:
        raise Problem(404, "unknown_version", f"Model {name!r} has version {VERSION} only; got {version[0][:80]!r}.")
    return name


def _input(tensors: list[Tensor], raw: bytes) -> object:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        raise Problem(400, "invalid_tensor", "Two inputs have the same name.")
    given = read_inputs(tensors, raw)
    return given[0] if len(given) == 1 else dict(zip(names, given, strict=True))


def _outputs(given: object, inputs: list[Tensor]) -> list[Made]:
    if isinstance(given, dict) and given and all(isinstance(key, str) for key in given):
        return [from_plain(key, value, inputs) for key, value in given.items()]
    return [from_plain("output", given, inputs)]


def _wanted(made: list[Made], body: InferenceRequest) -> list[tuple[Made, bool]]:
    """The outputs that are asked for, and whether each is to be raw."""
    all_raw = (body.parameters or {}).get("binary_data_output") is True
    if not body.outputs:
        return [(tensor, all_raw) for tensor in made]
    by_name = {tensor.name: tensor for tensor in made}
    missing = [output.name for output in body.outputs if output.name not in by_name]
    if missing:
        listed = ", ".join(by_name)
        raise Problem(400, "unknown_output", f"There is no output {missing[0][:80]!r}. Available: {listed}.")
    return [
        (by_name[output.name], (output.parameters or {}).get("binary_data", all_raw) is True) for output in body.outputs
    ]


def _deadline_ms(parameters: dict[str, Any] | None) -> float | None:
    given = (parameters or {}).get("deadline_ms")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1e12:
        raise Problem(400, "invalid_body", f"parameters.deadline_ms must be above 0; got {str(given)[:80]}.")
    return float(given)


_TAG = "Open Inference Protocol"
_NOT_READY = "It does not take requests now."

ENDPOINTS = (
    Endpoint("GET", "/v2", server, "This server", _TAG, {200: Answer("Name and version.", ServerMetadata)}),
    Endpoint(
        "GET", "/v2/health/live", live, "Whether the server lives", _TAG, {200: Answer("It does.", Live)}, is_open=True
    ),
    Endpoint(
        "GET",
        "/v2/health/ready",
        ready,
        "Whether the server takes requests",
        _TAG,
        {200: Answer("It does.", Ready), 503: Answer(_NOT_READY, Ready)},
        is_open=True,
    ),
    *(
        endpoint
        for version, path in ((False, "/v2/models/{model}"), (True, "/v2/models/{model}/versions/{version}"))
        for endpoint in (
            Endpoint(
                "GET",
                path,
                model,
                "A workflow as a model" + (", by version" if version else ""),
                _TAG,
                {200: Answer("Its metadata.", ModelMetadata)},
                errors=(404,),
            ),
            Endpoint(
                "GET",
                f"{path}/ready",
                model_ready,
                "Whether a model takes requests" + (", by version" if version else ""),
                _TAG,
                {200: Answer("It does.", ModelReady), 503: Answer(_NOT_READY, ModelReady)},
                errors=(404,),
            ),
            Endpoint(
                "POST",
                f"{path}/infer",
                infer,
                "Run a workflow on tensors" + (", by version" if version else ""),
                _TAG,
                {
                    200: Answer(
                        "Its outputs; as bytes where raw ones follow the JSON.",
                        (InferenceResponse, "application/octet-stream"),
                        ("Inference-Header-Content-Length", "X-Call-Id"),
                    )
                },
                errors=CALL_ERRORS,
                body=(InferenceRequest, "application/octet-stream"),
                headers=("X-Deadline-Ms", "Inference-Header-Content-Length"),
            ),
        )
    ),
)
