"""Open Inference Protocol v2: a workflow as a model.

One input tensor becomes the workflow's input, as nested lists; several become an object by name. An answer that is an
object gives one output per key, any other answer one output named "output".
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from fairlead.engine.live.gateway.bodies import deadline_s, read_json, to_value
from fairlead.engine.live.gateway.calls import CALL_ERRORS, output
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.gateway.tensors import Tensor, from_plain, to_plain
from fairlead.engine.live.gateway.version import VERSION as PACKAGE_VERSION

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

VERSION = "1"


class WantedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """An output that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class InferenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a model is asked. `parameters.deadline_ms` is the deadline, from now."""

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


class TensorMetadata(msgspec.Struct):
    """What is known of an input or output: workflows take any shape and type."""

    name: str
    datatype: str
    shape: list[int]


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
    return json_reply(ServerMetadata("fairlead", PACKAGE_VERSION, []))


async def live(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Alive, since it answers."""
    return json_reply(Live(True))


async def ready(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Whether every app takes requests."""
    is_ready = gateway.is_ready
    return json_reply(Ready(is_ready), 200 if is_ready else 503)


async def model(gateway: "Gateway", exchange: Exchange) -> Reply:
    """A workflow as a model."""
    name = _model(gateway, exchange)
    tensor = [TensorMetadata("input", "BYTES", [-1])]
    return json_reply(
        ModelMetadata(name, [VERSION], "fairlead_workflow", tensor, [TensorMetadata("output", "BYTES", [-1])])
    )


async def model_ready(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Whether a workflow takes requests."""
    name = _model(gateway, exchange)
    is_ready = gateway.is_ready
    return json_reply(ModelReady(name, is_ready), 200 if is_ready else 503)


async def infer(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Run a workflow on tensors."""
    name = _model(gateway, exchange)
    body = await read_json(exchange, _requests, gateway.settings.max_containers)
    _, ending = await gateway.intake.run(
        name,
        to_value(_input(body.inputs)),
        deadline_s=deadline_s(exchange, _deadline_ms(body.parameters), None),
        budget_usd=None,
        connection=exchange.connection,
    )
    try:
        tensors = await output(gateway.host, ending, _outputs)
    except (TypeError, ValueError, RecursionError) as error:
        raise Problem(502, "no_json_form", f"The answer has no tensor form: {error}.") from None
    response = InferenceResponse(
        model_name=name,
        model_version=VERSION,
        outputs=_wanted(tensors, body.outputs),
        id=body.id,
        parameters={"latency_ms": ending.latency_s * 1e3, "in_time": ending.is_in_time},
    )
    return json_reply(response)


def _model(gateway: "Gateway", exchange: Exchange) -> str:
    name, *version = exchange.names
    gateway.intake.full_name(name)
    if version and version[0] != VERSION:
        raise Problem(404, "unknown_version", f"Model {name!r} has version {VERSION} only; got {version[0][:80]!r}.")
    return name


def _input(tensors: list[Tensor]) -> object:
    if len(tensors) == 1:
        return to_plain(tensors[0])
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        raise Problem(400, "invalid_tensor", "Two inputs have the same name.")
    return {tensor.name: to_plain(tensor) for tensor in tensors}


def _outputs(given: object) -> list[Tensor]:
    if isinstance(given, dict) and given and all(isinstance(key, str) for key in given):
        return [from_plain(key, value) for key, value in given.items()]
    return [from_plain("output", given)]


def _wanted(tensors: list[Tensor], wanted: list[WantedOutput] | None) -> list[Tensor]:
    if not wanted:
        return tensors
    by_name = {tensor.name: tensor for tensor in tensors}
    missing = [output.name for output in wanted if output.name not in by_name]
    if missing:
        listed = ", ".join(by_name)
        raise Problem(400, "unknown_output", f"There is no output {missing[0][:80]!r}. Available: {listed}.")
    return [by_name[output.name] for output in wanted]


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
    Endpoint(
        "GET", "/v2", server, "This server", _TAG, {200: Answer("Name and version.", ServerMetadata)}, is_plain=True
    ),
    Endpoint(
        "GET",
        "/v2/health/live",
        live,
        "Whether the server lives",
        _TAG,
        {200: Answer("It does.", Live)},
        is_open=True,
        is_plain=True,
    ),
    Endpoint(
        "GET",
        "/v2/health/ready",
        ready,
        "Whether the server takes requests",
        _TAG,
        {200: Answer("It does.", Ready), 503: Answer(_NOT_READY, Ready)},
        is_open=True,
        is_plain=True,
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
                is_plain=True,
            ),
            Endpoint(
                "GET",
                f"{path}/ready",
                model_ready,
                "Whether a model takes requests" + (", by version" if version else ""),
                _TAG,
                {200: Answer("It does.", ModelReady), 503: Answer(_NOT_READY, ModelReady)},
                errors=(404,),
                is_plain=True,
            ),
            Endpoint(
                "POST",
                f"{path}/infer",
                infer,
                "Run a workflow on tensors" + (", by version" if version else ""),
                _TAG,
                {200: Answer("Its outputs.", InferenceResponse)},
                errors=CALL_ERRORS,
                body=InferenceRequest,
                headers=("X-Deadline-Ms",),
                is_plain=True,
            ),
        )
    ),
)
