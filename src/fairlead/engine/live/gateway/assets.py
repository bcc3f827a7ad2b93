"""The files of the dashboard's page, as they lie in the package `fairlead.web`: read once, compressed once."""

from functools import cache
from gzip import compress
from importlib.resources import files
from typing import NamedTuple

from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Headers, Reply

PAGE = "index.html"
_KINDS = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FOLDERS = ("", "dashboard", "vendor")
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Asset(NamedTuple):
    """One file, as it is sent."""

    body: bytes
    gzipped: bytes
    kind: bytes


@cache
def assets() -> dict[str, Asset]:
    """Every file by its name. No two folders have a file of the same name."""
    found: dict[str, Asset] = {}
    root = files("fairlead.web")
    for folder in _FOLDERS:
        for file in (root.joinpath(folder) if folder else root).iterdir():
            kind = _KINDS.get(file.name.rpartition(".")[2])
            if kind is not None:
                assert file.name not in found, f"{file.name} is there twice"
                body = file.read_bytes()
                found[file.name] = Asset(body, compress(body, 9, mtime=0), kind)
    return found


def send(exchange: Exchange, name: str) -> Reply:
    """A file, compressed for a client that takes that; 404 for one that is not there."""
    asset = assets().get(name)
    if asset is None:
        raise Problem(404, "unknown_path", f"There is no file {name[:80]!r} here. The dashboard is at /.")
    headers: Headers = [
        (b"cache-control", b"no-cache"),
        (b"vary", b"Accept-Encoding"),
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    if b"gzip" in exchange.headers.get(b"accept-encoding", b""):
        return Reply(200, asset.gzipped, [*headers, (b"content-encoding", b"gzip")], asset.kind)
    return Reply(200, asset.body, headers, asset.kind)
