"""`/docs`: the interface on one page that needs nothing from elsewhere."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from fairlead.engine.live.gateway.endpoints import Endpoint
from fairlead.engine.live.gateway.version import VERSION

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
    """The page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Fairlead gateway</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}</style></head><body><h1>Fairlead gateway</h1>",
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
    if endpoint.headers:
        rows.append(
            f"<tr><td class='quiet'>headers</td><td class='quiet'>{escape(', '.join(endpoint.headers))}</td></tr>"
        )
    text = f"<p>{escape(endpoint.description)}</p>" if endpoint.description else ""
    return (
        f"<details><summary><span class='method'>{endpoint.method}</span> <code>{escape(endpoint.path)}</code> "
        f"<span class='quiet'>{escape(endpoint.summary)}</span></summary>{text}<table>{''.join(rows)}</table></details>"
    )
