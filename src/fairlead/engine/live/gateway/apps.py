"""Apps at run time: list, deploy, replace, remove, hold functions at a number of instances, and move them."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from fairlead.app.manifest import Manifest
from fairlead.engine.live.gateway.bodies import read_json
from fairlead.engine.live.gateway.deployments import (
    NAME,
    deploy,
    find_app,
    move_function,
    remove,
    require_function,
    require_upload,
    scale_function,
)
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.status import AppStatus, FunctionStatus

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

MOST_INSTANCES = 10_000
# JSON does not tell 4 from 4.0, and neither does a schema's "integer": so a whole number of either spelling is taken.
InstanceCount = Annotated[float, msgspec.Meta(ge=0, le=MOST_INSTANCES, multiple_of=1)]


class Source(msgspec.Struct, forbid_unknown_fields=True):
    """An app as Python text."""

    source: Annotated[str, msgspec.Meta(min_length=1)]


class NamedSource(msgspec.Struct, forbid_unknown_fields=True):
    """An app as Python text, and its name."""

    name: Annotated[str, msgspec.Meta(pattern=f"^{NAME.pattern}$")]
    source: Annotated[str, msgspec.Meta(min_length=1)]


class AppSummary(msgspec.Struct):
    """An app in a list."""

    name: str
    policy: str
    workflows: list[str]
    functions: list[str]


class AppList(msgspec.Struct):
    """The apps there are."""

    apps: list[AppSummary]


class AppDetail(msgspec.Struct):
    """An app: as it was declared, and how it stands."""

    manifest: dict[str, Any]
    status: AppStatus | None


class FunctionDetail(msgspec.Struct):
    """A function: as it was declared, and how it stands."""

    function: dict[str, Any]
    status: FunctionStatus | None


class FunctionList(msgspec.Struct):
    """The functions of an app."""

    functions: list[FunctionDetail]


class Scaling(msgspec.Struct, forbid_unknown_fields=True):
    """How many instances; null gives the function back to the policy."""

    instances: InstanceCount | None


class Scaled(msgspec.Struct):
    """What a function is now held at."""

    app: str
    function: str
    instances: int | None


class Destination(msgspec.Struct, forbid_unknown_fields=True):
    """Where to."""

    node: Annotated[str, msgspec.Meta(min_length=1)]


class Moving(msgspec.Struct):
    """Where a function's instances are brought to."""

    app: str
    function: str
    node: str


class Removed(msgspec.Struct):
    """What was removed."""

    name: str


_sources = msgspec.json.Decoder(Source)
_named_sources = msgspec.json.Decoder(NamedSource)
_scalings = msgspec.json.Decoder(Scaling)
_moves = msgspec.json.Decoder(Destination)


async def listing(gateway: "Gateway", exchange: Exchange) -> Reply:
    """All apps."""
    return json_reply(AppList([_summary(manifest) for manifest in gateway.host.manifests()]))


async def detail(gateway: "Gateway", exchange: Exchange) -> Reply:
    """One app."""
    manifest = find_app(gateway, exchange.names[0])
    status = next((app for app in gateway.host.status().apps if app.name == manifest.name), None)
    return json_reply(AppDetail(msgspec.to_builtins(manifest), status))


async def create(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Deploy an app that is not there yet."""
    require_upload(gateway)
    body = read_json(exchange, _named_sources)
    manifest = await deploy(gateway, body.name, body.source, replace=False)
    return json_reply(_summary(manifest), 201, [(b"location", f"/v1/apps/{manifest.name}".encode())])


async def put(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Deploy an app, or replace it."""
    require_upload(gateway)
    (name,) = exchange.names
    body = read_json(exchange, _sources)
    was_there = any(manifest.name == name for manifest in gateway.host.manifests())
    manifest = await deploy(gateway, name, body.source, replace=True)
    return json_reply(_summary(manifest), 200 if was_there else 201, [(b"location", f"/v1/apps/{name}".encode())])


async def delete(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Remove an app, also one that is not served now, and end what waits for it."""
    require_upload(gateway)
    (name,) = exchange.names
    await remove(gateway, name)
    return json_reply(Removed(name))


async def functions(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The functions of an app."""
    return json_reply(FunctionList(_details(gateway, find_app(gateway, exchange.names[0]))))


async def function(gateway: "Gateway", exchange: Exchange) -> Reply:
    """One function of an app."""
    app, name = exchange.names
    manifest = find_app(gateway, app)
    require_function(manifest, name)
    return json_reply(next(found for found in _details(gateway, manifest) if found.function["name"] == name))


async def scale(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Hold a function at a number of instances."""
    app, name = exchange.names
    manifest = find_app(gateway, app)
    require_function(manifest, name)
    body = read_json(exchange, _scalings)
    instances = None if body.instances is None else int(body.instances)
    scale_function(gateway, app, name, instances)
    return json_reply(Scaled(app, name, instances))


async def move(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Bring a function's instances to a node."""
    app, name = exchange.names
    manifest = find_app(gateway, app)
    require_function(manifest, name)
    body = read_json(exchange, _moves)
    move_function(gateway, app, name, body.node)
    return json_reply(Moving(app, name, body.node), 202)


def _summary(manifest: Manifest) -> AppSummary:
    return AppSummary(
        name=manifest.name,
        policy=manifest.policy,
        workflows=[workflow.name for workflow in manifest.workflows],
        functions=[function.name for function in manifest.functions],
    )


def _details(gateway: "Gateway", manifest: Manifest) -> list[FunctionDetail]:
    status = next((app for app in gateway.host.status().apps if app.name == manifest.name), None)
    known = {} if status is None else {function.name: function for function in status.functions}
    return [FunctionDetail(msgspec.to_builtins(spec), known.get(spec.name)) for spec in manifest.functions]


ENDPOINTS = (
    Endpoint("GET", "/v1/apps", listing, "The apps there are", "Apps", {200: Answer("All apps.", AppList)}),
    Endpoint(
        "POST",
        "/v1/apps",
        create,
        "Deploy an app from Python text",
        "Apps",
        {201: Answer("It serves.", AppSummary, ("Location",))},
        errors=(400, 403, 408, 409, 413, 415, 422, 503, 507),
        body=NamedSource,
        description="Off unless the gateway has a token and was started with code upload.",
    ),
    Endpoint(
        "GET",
        "/v1/apps/{app}",
        detail,
        "One app, as declared and as it stands",
        "Apps",
        {200: Answer("The app.", AppDetail)},
        errors=(404,),
    ),
    Endpoint(
        "PUT",
        "/v1/apps/{app}",
        put,
        "Deploy or replace an app",
        "Apps",
        {
            200: Answer("It was replaced; what was in flight finishes on the former one.", AppSummary, ("Location",)),
            201: Answer("It is new, and serves.", AppSummary, ("Location",)),
        },
        errors=(400, 403, 408, 409, 413, 415, 422, 503, 507),
        body=Source,
        description="Off unless the gateway has a token and was started with code upload.",
    ),
    Endpoint(
        "DELETE",
        "/v1/apps/{app}",
        delete,
        "Remove an app, after what is in flight",
        "Apps",
        {200: Answer("It takes no more requests; asynchronous ones that waited for it have failed.", Removed)},
        errors=(403, 404, 507),
        description="Needs the same rights as a deployment.",
    ),
    Endpoint(
        "GET",
        "/v1/apps/{app}/functions",
        functions,
        "The functions of an app",
        "Apps",
        {200: Answer("Its functions.", FunctionList)},
        errors=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/apps/{app}/functions/{function}",
        function,
        "One function of an app",
        "Apps",
        {200: Answer("The function.", FunctionDetail)},
        errors=(404,),
    ),
    Endpoint(
        "POST",
        "/v1/apps/{app}/functions/{function}/scale",
        scale,
        "Hold a function at a number of instances",
        "Apps",
        {200: Answer("It is held there.", Scaled)},
        errors=(400, 404, 408, 409, 413, 415),
        body=Scaling,
    ),
    Endpoint(
        "POST",
        "/v1/apps/{app}/functions/{function}/move",
        move,
        "Bring a function's instances to a node",
        "Apps",
        {202: Answer("They are on their way: new ones are ready there before the old ones go.", Moving)},
        errors=(400, 404, 408, 413, 415),
        body=Destination,
    ),
)
