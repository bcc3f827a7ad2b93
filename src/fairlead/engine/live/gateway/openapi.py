"""The OpenAPI 3.1 document, from the endpoints themselves and the structs they read and give."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.schemas import Error, PlainError
from fairlead.engine.live.gateway.version import VERSION

_REF = "#/components/schemas/{name}"
_DESCRIPTION = (
    "Runs workflows under their deadline. Every answer carries `X-Request-ID`, the one that was sent if it is valid; a "
    "valid `traceparent` comes back too. Errors have the body `Error`, or `PlainError` in the Open Inference Protocol."
)

HEADERS: dict[str, dict[str, Any]] = {
    "X-Deadline-Ms": {
        "description": "Deadline in milliseconds from now. If the body has one too, the smaller counts.",
        "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e12},
    },
    "Prefer": {
        "description": "`respond-async` accepts the call without waiting (RFC 7240).",
        "schema": {"type": "string", "enum": ["respond-async"]},
    },
    "Idempotency-Key": {
        "description": "A repeated call with the same key and the same input gives the same request.",
        "schema": {"type": "string", "pattern": "^[!-~]([ -~]{0,2046}[!-~])?$"},
    },
    "traceparent": {
        "description": "W3C trace context. An invalid one is ignored.",
        "schema": {"type": "string"},
    },
    "Inference-Header-Content-Length": {
        "description": "Size of the JSON in bytes, where raw tensors follow it in the body.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "X-Callback-Url": {
        "description": "Is told of the end. Must be on the operator's allow-list.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,2048}$"},
    },
}

RETRY: dict[str, Any] = {
    "Retry-After": {"description": "In whole seconds, rounded up.", "schema": {"type": "integer"}},
    "Retry-After-Ms": {"description": "The same in milliseconds.", "schema": {"type": "integer"}},
}
_MEANINGS = {
    400: "Invalid body or header.",
    401: "The token is missing or wrong.",
    403: "Not allowed here.",
    404: "There is no such thing; the message names what is close.",
    408: "The request was not complete in time.",
    409: "Not possible in its present state.",
    413: "The body is too large.",
    415: "The content type is not JSON.",
    422: "It was understood and cannot be done.",
    429: "Refused: it would not have met its deadline, or there is no place. `Retry-After` is computed.",
    500: "The gateway failed.",
    502: "The function failed; the message is its own.",
    503: "Not ready, or about to end.",
    504: "The deadline passed while it waited.",
    507: "The disk cannot take it; nothing was accepted.",
}


def document_json(endpoints: Sequence[Endpoint]) -> bytes:
    """The document."""
    return msgspec.json.encode(document(endpoints))


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document as plain values."""
    types = _types(endpoints)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlead",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(endpoints: Sequence[Endpoint]) -> list[Any]:
    bodies = [body for endpoint in endpoints for body in _choices(endpoint.body)]
    answers = [answer for endpoint in endpoints for answer in endpoint.answers.values()]
    bodies += [body for answer in answers for body in _choices(answer.body)]
    found = {repr(body): body for body in bodies if body is not None and not isinstance(body, str)}
    return [*found.values(), Error, PlainError]


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identifier(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": _responses(endpoint, schemas),
        "security": [] if endpoint.is_open else [{"token": []}, {}],
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    parameters += [{"name": name, "in": "header", "required": False, **HEADERS[name]} for name in endpoint.headers]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": meaning, "schema": schema}
        for name, meaning, schema in endpoint.query
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(endpoint.body, schemas)}
    return operation


def _responses(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in endpoint.answers.items():
        responses[str(status)] = _response(answer, schemas)
    error = schemas[repr(PlainError if endpoint.is_plain else Error)]
    always = (500,) if endpoint.is_open else (401, 403, 500)
    for status in sorted({*endpoint.errors, *always}):
        if str(status) in responses:
            continue
        meaning = _MEANINGS.get(status, HTTPStatus(status).phrase)
        response: dict[str, Any] = {"description": meaning, "content": {"application/json": {"schema": error}}}
        if status in (429, 503, 507):
            response["headers"] = RETRY
        responses[str(status)] = response
    return dict(sorted(responses.items()))


def _response(answer: Answer, schemas: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": answer.description}
    if answer.body is not None:
        response["content"] = _content(answer.body, schemas)
    if answer.headers:
        known = {**HEADERS, **RETRY}
        response["headers"] = {name: known.get(name, {"schema": {"type": "string"}}) for name in answer.headers}
    return response


def _content(body: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for choice in _choices(body):
        if isinstance(choice, str):
            content[choice] = {"schema": {"type": "string"} if choice.startswith("text/") else {}}
        else:
            content["application/json"] = {"schema": schemas[repr(choice)]}
    return content


def _choices(body: Any) -> tuple[Any, ...]:
    return body if isinstance(body, tuple) else (body,)


def _identifier(endpoint: Endpoint) -> str:
    words = [word for word in re.split(r"[/{}.-]+", endpoint.path) if word]
    return "_".join([endpoint.method.lower(), *words])
