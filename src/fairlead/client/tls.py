"""TLS from the client's side: which certificates are trusted, and what a failed handshake means."""

import ssl
from pathlib import Path

from fairlead.errors import FairleadError

_EXPIRED, _NOT_YET = 10, 9  # X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID
_OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class TLSError(FairleadError):
    """A server cannot be trusted, or does not speak TLS."""


def client_context(cacert: Path | None = None) -> ssl.SSLContext:
    """A context that verifies certificate and host name.

    Args:
        cacert: PEM file of the certificates to trust instead of the system's: an authority's, or the server's own.

    Raises:
        ValueError: The file cannot be read, or holds no certificate.
    """
    if cacert is None:
        return ssl.create_default_context()
    try:
        data = cacert.read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"{cacert}: cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    try:
        if b"-----BEGIN CERTIFICATE-----" not in data:
            raise ssl.SSLError
        context = ssl.create_default_context(cadata=data.decode("ascii", errors="ignore"))
    except ssl.SSLError as error:
        raise ValueError(f"{cacert}: holds no certificate in PEM form.") from error
    # A certificate in the file is trusted as it is, whether it signs others or not, and may be as simple as one that
    # `openssl req -x509` makes; newer Pythons would want more extensions in it than curl does.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


def tls_failure(url: str, error: ssl.SSLError, cacert: Path | None, option: str = "--cacert FILE") -> TLSError:
    """What went wrong in the handshake with this server, and what to do; `option` is how a certificate is given."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        what = (error.reason or "the handshake failed").replace("_", " ").lower()
        return TLSError(f"{url}: does not speak TLS there ({what}). If it serves plain HTTP, use http://.")
    why = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAME:
        todo = "Use a name or an address that the certificate contains."
    elif error.verify_code in (_EXPIRED, _NOT_YET):
        todo = "Renew the certificate, or set the clock of this machine."
    elif cacert is None:
        todo = f"Give the certificate to trust with {option}: its authority's, or its own if it is self-signed."
    else:
        todo = f"{cacert} neither contains it nor the authority that signed it."
    return TLSError(f"{url}: its certificate is not trusted: {why}. {todo}")
