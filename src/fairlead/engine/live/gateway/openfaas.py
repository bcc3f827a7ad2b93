"""The shape that users of OpenFaaS know: functions registered, scaled, called and removed one by one.

A function that is registered alone is an app with one function and one workflow, all of its name.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec

from fairlead.app.manifest import Manifest
from fairlead.engine.live.gateway.apps import InstanceCount
from fairlead.engine.live.gateway.asynchronous import ACCEPT_ERRORS, ACCEPT_HEADERS, Acceptance, keep
from fairlead.engine.live.gateway.bodies import deadline_s, raw_value, read_json, to_value
from fairlead.engine.live.gateway.calls import CALL_ERRORS, bare_answer
from fairlead.engine.live.gateway.deployments import NAME, deploy, remove, require_upload, scale_function
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.values import to_json
from fairlead.errors import UnknownNameError

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_NEVER = float("inf")
_WRAPPER = """

from fairlead.app import App as _App

_{mark} = _App({service!r})
_{mark}.workflow({service!r}, _{mark}.function(name={service!r})({handler}){slo})
"""


class Registration(msgspec.Struct):
    """A function as Python text; `handler` names what is called, with one argument.

    Text that declares an app of the service's name itself is taken as it is. Other fields, such as the `image` and
    `envProcess` of OpenFaaS, are ignored.
    """

    service: Annotated[str, msgspec.Meta(pattern=f"^{NAME.pattern}$")]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    handler: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")] = "handle"
    slo_ms: Annotated[float, msgspec.Meta(gt=0, le=1e12)] | None = None


class Deletion(msgspec.Struct, rename="camel"):
    """Which function is removed. Other fields are ignored."""

    function_name: str


class ReplicaCount(msgspec.Struct, rename="camel"):
    """How many instances a function is held at. Other fields are ignored."""

    replicas: InstanceCount
    service_name: str | None = None


class FunctionEntry(msgspec.Struct, rename="camel"):
    """A workflow in the list: its name can be called at `/function/{name}`.

    `replicas` counts the instances of that of its functions which has the fewest, `available_replicas` those that are
    ready. `invocation_count` counts requests.
    """

    name: str
    image: str
    namespace: str
    invocation_count: int
    replicas: int
    available_replicas: int


_registrations = msgspec.json.Decoder(Registration)
_deletions = msgspec.json.Decoder(Deletion)
_counts = msgspec.json.Decoder(ReplicaCount)


async def listing(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Every workflow of every app."""
    manifests = {manifest.name: manifest for manifest in gateway.host.manifests()}
    entries = []
    for app in gateway.host.status().apps:
        functions = {function.name: function for function in app.functions}
        specs = {spec.name: spec for spec in manifests[app.name].workflows} if app.name in manifests else {}
        for workflow in app.workflows:
            if workflow.name not in specs:
                continue  # it has just been replaced
            used = [functions[stage.function] for stage in specs[workflow.name].stages if stage.function in functions]
            entries.append(
                FunctionEntry(
                    name=_listed(gateway, app.name, workflow.name),
                    image="",
                    namespace=app.name,
                    invocation_count=workflow.offered,
                    replicas=min((one.starting + one.idle + one.busy for one in used), default=0),
                    available_replicas=min((one.idle + one.busy for one in used), default=0),
                )
            )
    return json_reply(entries)


def _listed(gateway: "Gateway", app: str, workflow: str) -> str:
    """The name by which a workflow is called: that of its app alone where both are the same and no other has it."""
    full = f"{app}.{workflow}"
    try:
        is_short = workflow == app and gateway.intake.full_name(workflow) == full
    except Problem:
        return full  # two apps have a workflow of that name
    return workflow if is_short else full


async def create(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Register a function."""
    return await _register(gateway, exchange, replace=False)


async def update(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Register a function, or replace it."""
    return await _register(gateway, exchange, replace=True)


async def _register(gateway: "Gateway", exchange: Exchange, *, replace: bool) -> Reply:
    body = read_json(exchange, _registrations)
    manifest = await deploy(gateway, body.service, alone(body), replace=replace)
    return json_reply(_functions_of(manifest), 202)


def alone(registration: Registration) -> str:
    """The source of an app with that function alone."""
    source = registration.source
    if "App(" in source:
        return source
    slo = "" if registration.slo_ms is None else f", slo={registration.slo_ms / 1e3!r}"
    return source + _WRAPPER.format(
        mark="fairlead_app", service=registration.service, handler=registration.handler, slo=slo
    )


async def delete(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Remove a function that was registered alone."""
    require_upload(gateway)
    body = read_json(exchange, _deletions)
    manifest, _ = find_function(gateway, body.function_name)
    if len(manifest.functions) > 1:
        message = f"{body.function_name!r} is a part of the app {manifest.name!r}: remove that with DELETE /v1/apps."
        raise Problem(409, "part_of_app", message)
    await remove(gateway, manifest.name)
    return json_reply(_functions_of(manifest), 202)


async def scale(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Hold a function at a number of instances."""
    body = read_json(exchange, _counts)
    (name,) = exchange.names
    if body.service_name not in (None, name):
        message = f"The path names {name[:80]!r} and the body {str(body.service_name)[:80]!r}: they must agree."
        raise Problem(409, "names_differ", message)
    manifest, function = find_function(gateway, name)
    scale_function(gateway, manifest.name, function, int(body.replicas))
    return json_reply(ScaledFunction(name, int(body.replicas)), 202)


async def call(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Call with a raw body; the answer's content type follows from what the function gave."""
    value = raw_value(exchange.header(b"content-type") or "", exchange.body, gateway.settings.max_containers)
    ticket, ending = await gateway.intake.run(
        exchange.names[0],
        to_value(value),
        deadline_s=deadline_s(exchange, None, None),
        budget_usd=None,
        connection=exchange.connection,
        trace=exchange.traceparent,
    )
    return await bare_answer(gateway.host, exchange, ticket, ending, _reply_of)


def _reply_of(given: object) -> Reply:
    if isinstance(given, bytes):
        return Reply(200, given, content_type=b"application/octet-stream")
    if isinstance(given, str):
        return Reply(200, given.encode("utf-8", "replace"), content_type=b"text/plain; charset=utf-8")
    return Reply(200, to_json(given))


async def call_async(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Accept a call with a raw body; `X-Callback-Url` is told of its end."""
    value = raw_value(exchange.header(b"content-type") or "", exchange.body, gateway.settings.max_containers)
    return await keep(
        gateway,
        exchange,
        exchange.names[0],
        to_value(value),
        deadline_s=deadline_s(exchange, None, _NEVER),
        callback_url=exchange.header(b"x-callback-url"),
    )


def find_function(gateway: "Gateway", name: str) -> tuple[Manifest, str]:
    """The app and the function of "app.function", or of "function" where that is unique; else 404.

    The name of a workflow stands for its function, if it has only one; for more it is 409, which names them.
    """
    found: dict[str, list[tuple[Manifest, str]]] = {}
    for manifest in gateway.host.manifests():
        for function in manifest.functions:
            found.setdefault(function.name, []).append((manifest, function.name))
            found[f"{manifest.name}.{function.name}"] = [(manifest, function.name)]
    matches = found.get(name, [])
    if len(matches) == 1:
        return matches[0]
    try:
        manifest, workflow = gateway.host.workflow(name)
    except UnknownNameError:
        raise Problem(404, "unknown_function", str(UnknownNameError("function", name[:200], found))) from None
    functions = sorted({stage.function for stage in workflow.stages})
    if len(functions) > 1:
        listed = ", ".join(f"{manifest.name}.{function}" for function in functions)
        raise Problem(409, "part_of_app", f"{name!r} is a workflow of several functions; name one of them: {listed}.")
    return manifest, functions[0]


class RegisteredFunctions(msgspec.Struct):
    """The functions of an app that came or went."""

    name: str
    functions: list[str]


class ScaledFunction(msgspec.Struct):
    """What a function is held at."""

    name: str
    replicas: int


def _functions_of(manifest: Manifest) -> RegisteredFunctions:
    return RegisteredFunctions(manifest.name, [function.name for function in manifest.functions])


_TAG = "OpenFaaS shape"
_DEPLOY_ERRORS = (400, 403, 408, 409, 413, 415, 422, 503, 507)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/system/functions",
        listing,
        "Every workflow of every app",
        _TAG,
        {200: Answer("The functions.", list[FunctionEntry])},
    ),
    Endpoint(
        "POST",
        "/system/functions",
        create,
        "Register a function",
        _TAG,
        {202: Answer("It serves.", RegisteredFunctions)},
        errors=_DEPLOY_ERRORS,
        body=Registration,
    ),
    Endpoint(
        "PUT",
        "/system/functions",
        update,
        "Register or replace a function",
        _TAG,
        {202: Answer("It serves.", RegisteredFunctions)},
        errors=_DEPLOY_ERRORS,
        body=Registration,
    ),
    Endpoint(
        "DELETE",
        "/system/functions",
        delete,
        "Remove a function that was registered alone",
        _TAG,
        {202: Answer("It takes no more requests.", RegisteredFunctions)},
        errors=(400, 403, 404, 408, 409, 413, 415, 507),
        body=Deletion,
    ),
    Endpoint(
        "POST",
        "/system/scale-function/{name}",
        scale,
        "Hold a function at a number of instances",
        _TAG,
        {202: Answer("It is held there.", ScaledFunction)},
        errors=(400, 404, 408, 409, 413, 415),
        body=ReplicaCount,
    ),
    Endpoint(
        "POST",
        "/function/{name}",
        call,
        "Call a workflow with a raw body",
        _TAG,
        {200: Answer("What it gave, as JSON, text or bytes.", "*/*", ("X-Call-Id",))},
        errors=CALL_ERRORS,
        body="*/*",
        headers=("X-Deadline-Ms",),
    ),
    Endpoint(
        "POST",
        "/async-function/{name}",
        call_async,
        "Accept a call with a raw body, without waiting",
        _TAG,
        {
            202: Answer("The request is on disk.", Acceptance, ("Location", "X-Call-Id")),
            200: Answer(
                "It was accepted before, with the same idempotency key.", Acceptance, ("Location", "X-Call-Id")
            ),
        },
        errors=ACCEPT_ERRORS,
        body="*/*",
        headers=(*ACCEPT_HEADERS, "X-Callback-Url"),
    ),
)
