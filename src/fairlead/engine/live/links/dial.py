"""Dialling: a blocking connection that has been greeted, for instances and for readers of values."""

import socket
import ssl

from fairlead.engine.live.links.address import Address, connect_to
from fairlead.engine.live.links.greeting import CHALLENGE_BYTES, PROOF_BYTES, Credential, Dialler

HANDSHAKE_LIMIT_S = 10.0
"""How long an end may take for TLS and the greeting. A gateway that starts again answers within this."""


def dial(
    address: Address, credential: Credential, tls: ssl.SSLContext | None, limit_s: float = HANDSHAKE_LIMIT_S
) -> socket.socket:
    """A connection whose ends have proved who they are. It blocks without a limit from then on.

    Raises:
        OSError: It cannot be reached, or TLS failed.
        GreetingError: One end does not accept the other.
    """
    connection = connect_to(address, limit_s)
    try:
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname=address.host or "localhost")
        dialler = Dialler(credential)
        connection.sendall(dialler.answer(_exactly(connection, CHALLENGE_BYTES)))
        dialler.check(_exactly(connection, PROOF_BYTES))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("it closed the connection")
        data += more
    return data
