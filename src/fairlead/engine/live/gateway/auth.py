"""Who may call: the token, and without one only this machine's own programs."""

from hmac import compare_digest
from urllib.parse import urlsplit

from fairlead.engine.live.gateway.problems import Problem

_LOCAL = ("localhost", "127.0.0.1", "::1")
_OWN_SITE = (b"same-origin", b"none")  # by a page of this gateway, or by hand


class Guard:
    """Lets an exchange pass, or raises the Problem that ends it.

    Without a token the gateway listens on loopback only, which a page in a browser on the same machine can still reach:
    so a name of another host (DNS rebinding) and a foreign `Origin` are refused, and what a browser sends for a page of
    another site without an `Origin`, such as an image that a page asks for.
    """

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else token.encode()
        self._local_hosts: set[bytes] = set()  # `Host` headers that were found to be ours

    def check(self, headers: dict[bytes, bytes]) -> None:
        """Refuse what has no right to be here."""
        if self._expected is None:
            host = headers.get(b"host", b"localhost")
            if host not in self._local_hosts:
                _require_local(host)
                if len(self._local_hosts) < 64:
                    self._local_hosts.add(host)
            if b"origin" in headers:
                _require_same(headers[b"origin"], host)
            elif b"sec-fetch-site" in headers and headers[b"sec-fetch-site"] not in _OWN_SITE:
                raise Problem(403, "foreign_origin", "Without a token a page of another site may not call it.")
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not compare_digest(given.strip(), self._expected):
            raise Problem(
                401,
                "unauthorized",
                "A token is needed: send it as 'Authorization: Bearer TOKEN'.",
                headers=[(b"www-authenticate", b'Bearer realm="fairlead"')],
            )

    def permits(self, headers: dict[bytes, bytes]) -> bool:
        """Whether `check` would let it pass."""
        try:
            self.check(headers)
        except Problem:
            return False
        return True


def _require_local(host: bytes) -> None:
    try:
        name = urlsplit("//" + host.decode("ascii")).hostname
    except ValueError:
        name = None
    if name not in _LOCAL:
        shown = host.decode("latin-1")[:200]
        raise Problem(403, "foreign_host", f"Without a token only local names are answered; got the host {shown!r}.")


def _require_same(origin: bytes, host: bytes) -> None:
    if origin.partition(b"://")[2] != host:
        shown = origin.decode("latin-1")[:200]
        raise Problem(403, "foreign_origin", f"Without a token a page of {shown!r} may not call this gateway.")
