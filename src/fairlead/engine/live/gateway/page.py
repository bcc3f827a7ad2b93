"""`/docs`: every endpoint, on a page that needs nothing from elsewhere; and what is served, as data."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from itertools import groupby

import msgspec

from fairlead.app.manifest import Manifest
from fairlead.engine.live.gateway.endpoints import Endpoint
from fairlead.engine.live.gateway.version import VERSION
from fairlead.engine.live.values import decode, to_json

_LONGEST_EXAMPLE = 200  # bytes of an example that is shown in a call

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }
h2 { margin-top: 2rem; border-bottom: 1px solid #cfd8e0 }
details { margin: .4rem 0 } summary { cursor: pointer } code { font-size: 14px }
.method { display: inline-block; width: 4.5rem; font-weight: 600; color: #0b5c8a }
td { padding: .1rem .8rem .1rem 0; vertical-align: top } .quiet { color: #5b6b7a }
@media (prefers-color-scheme: dark) { body { background: #14191f; color: #dde5ec } .method { color: #7cc4ee }
h2 { border-color: #33404c } .quiet { color: #93a3b1 } a { color: #7cc4ee } }
"""


def document_page(endpoints: Sequence[Endpoint]) -> bytes:
    """Every endpoint, for people."""
    parts = [
        f"{_head('Fairlead gateway', _STYLE)}<h1>Fairlead gateway</h1>",
        f"<p class='quiet'>Version {escape(VERSION)}. For programs: <a href='/openapi.json'>openapi.json</a>.</p>",
    ]
    for tag, group in groupby(endpoints, key=lambda endpoint: endpoint.tag):
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += map(_endpoint, group)
    parts.append("</body></html>")
    return "".join(parts).encode()


def _endpoint(endpoint: Endpoint) -> str:
    rows = [
        f"<tr><td>{status}</td><td>{escape(answer.description)}</td></tr>"
        for status, answer in sorted(endpoint.answers.items())
    ]
    errors = ", ".join(str(status) for status in sorted(endpoint.errors))
    if errors:
        rows.append(f"<tr><td class='quiet'>errors</td><td class='quiet'>{errors}</td></tr>")
    if endpoint.query:
        names = ", ".join(name for name, _, _ in endpoint.query)
        rows.append(f"<tr><td class='quiet'>query</td><td class='quiet'>{escape(names)}</td></tr>")
    if endpoint.headers:
        rows.append(
            f"<tr><td class='quiet'>headers</td><td class='quiet'>{escape(', '.join(endpoint.headers))}</td></tr>"
        )
    text = f"<p>{escape(endpoint.description)}</p>" if endpoint.description else ""
    return (
        f"<details><summary><span class='method'>{endpoint.method}</span> <code>{escape(endpoint.path)}</code> "
        f"<span class='quiet'>{escape(endpoint.summary)}</span></summary>{text}<table>{''.join(rows)}</table></details>"
    )


_LINKS = {
    "/docs": "every endpoint",
    "/openapi.json": "the same for programs",
    "/metrics": "for Prometheus",
    "/readyz": "readiness",
    "/v1/status": "status",
}


class WorkflowLink(msgspec.Struct):
    """A workflow that can be called: its path, its SLO in seconds, and an example call for a shell."""

    name: str
    path: str
    slo_s: float | None
    example: str


class AppLink(msgspec.Struct):
    """An app and its workflows."""

    name: str
    policy: str
    workflows: list[WorkflowLink]


class Home(msgspec.Struct):
    """What is served here. `apps` is null for a caller without the token, where one is needed."""

    name: str
    version: str
    ready: bool
    apps: list[AppLink] | None
    links: dict[str, str]


def home(manifests: Sequence[Manifest] | None, *, address: str, has_token: bool, is_ready: bool) -> Home:
    """The contents of the first page; `address` is scheme, host and port by which the caller reached it."""
    apps = None
    if manifests is not None:
        names = Counter(spec.name for manifest in manifests for spec in manifest.workflows)
        apps = []
        for manifest in manifests:
            links = []
            for spec in manifest.workflows:
                called = spec.name if names[spec.name] == 1 else f"{manifest.name}.{spec.name}"
                path = f"/v1/workflows/{called}"
                links.append(WorkflowLink(called, path, spec.slo_s, _curl(address + path, has_token, spec.example)))
            apps.append(AppLink(manifest.name, manifest.policy, links))
    return Home("fairlead", VERSION, is_ready, apps, _LINKS)


def _head(title: str, style: str) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{style}</style></head><body>"
    )


def _curl(url: str, has_token: bool, example: bytes | None) -> str:
    """A call for a shell; with the workflow's own example, if that is short and JSON."""
    token = ' \\\n  -H "authorization: Bearer $FAIRLEAD_TOKEN"' if has_token else ""
    body = '{"input": null}'
    if example is not None and len(example) <= _LONGEST_EXAMPLE:
        with suppress(TypeError, ValueError):
            body = '{"input": ' + to_json(decode(example)).decode() + "}"
    quoted = body.replace("'", "'\\''")
    return f"curl {url}{token} \\\n  -H 'content-type: application/json' -d '{quoted}'"
