"""The head of a request by the rules of HTTP/1.1: its target, its host, its codings."""

import re

import httptools

from fairlead.engine.live.gateway.problems import Problem

_HOST = re.compile(
    rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\])(?::[0-9]*)?"
).fullmatch


def request_target(method: bytes, target: bytes) -> tuple[str, bytes, bytes | None]:
    """Path and query of a target, and its host where it is a whole URL, which then counts instead of the header."""
    if method == b"CONNECT":
        raise Problem(405, "method_not_allowed", "This is not a proxy: CONNECT is not supported.")
    host: bytes | None = None
    if not target.startswith(b"/"):
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            url = None
        if url is None or url.schema not in (b"http", b"https") or not url.host or url.userinfo is not None:
            raise Problem(400, "invalid_target", "The request target must be a path, or a URL with a host.")
        name = b"[%b]" % url.host if b":" in url.host else url.host
        host = name if url.port is None else b"%b:%d" % (name, url.port)
        target = (url.path or b"/") + (b"?" + url.query if url.query else b"")
    path, _, query = target.partition(b"#")[0].partition(b"?")
    try:
        return path.decode("ascii"), query, host
    except UnicodeDecodeError:
        raise Problem(400, "invalid_target", "The path must be ASCII; encode other characters as %XX.") from None


def check_head(headers: dict[bytes, bytes], version: str) -> None:
    """Refuse a head that cannot be trusted to mean the same to us and to a proxy before us."""
    if version not in ("1.1", "1.0"):
        raise Problem(505, "version", f"HTTP/{version} is not supported; use HTTP/1.1.")
    host = headers.get(b"host")
    if host is None:
        if version == "1.1":
            raise Problem(400, "invalid_host", "HTTP/1.1 requests have a Host header; this one has none.")
    elif not _HOST(host):
        raise Problem(400, "invalid_host", "A request has one Host header, with one host and at most one port.")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.strip().lower() != b"chunked" or version == "1.0"):
        raise Problem(501, "transfer_coding", "The only transfer coding that is supported is 'chunked'.")
    expect = headers.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise Problem(417, "expectation", "The only expectation that is supported is '100-continue'.")


def check_coding(headers: dict[bytes, bytes]) -> None:
    """Refuse a body that is compressed: nothing here would decompress it."""
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() not in (b"", b"identity"):
        shown = coding.decode("latin-1")[:80]
        raise Problem(
            415,
            "content_coding",
            f"Bodies are taken as they are; got the content coding {shown!r}. Send it uncompressed.",
            headers=[(b"accept-encoding", b"identity")],
        )
