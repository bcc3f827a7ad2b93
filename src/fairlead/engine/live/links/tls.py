"""TLS of the links between machines: contexts for the two ends, from PEM files."""

import ssl
from pathlib import Path

import msgspec

from fairlead.errors import ConfigError, Fault


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of PEM files. `cacert` is what the other end is verified with: a CA, or the other's own certificate.

    With `is_pinned`, `cacert` is the one certificate that all ends share, at whatever address they are: who has its key
    is trusted, and names are not checked.
    """

    certfile: str | None = None
    keyfile: str | None = None
    cacert: str | None = None
    is_pinned: bool = False


def server_context(files: TlsFiles) -> ssl.SSLContext | None:
    """TLS for the listening end; None without a certificate. With `cacert`, the other end must show one too."""
    if files.certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load(context, files)
    if files.cacert is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext | None:
    """TLS for the dialling end, which checks the other's certificate and name; None without `cacert`."""
    if files.cacert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = not files.is_pinned
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    file = files.certfile
    try:
        if files.certfile is not None:
            context.load_cert_chain(files.certfile, files.keyfile, password=_no_password)
        file = files.cacert
        if files.cacert is not None:
            if not Path(files.cacert).is_file():
                raise FileNotFoundError(2, "No such file")
            context.load_verify_locations(files.cacert)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        what = f"cannot be used for TLS: {str(why).replace('_', ' ').lower()}."
        raise ConfigError(str(file), [Fault("", what)]) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; decrypt it, since a program that starts again cannot ask for a password")
