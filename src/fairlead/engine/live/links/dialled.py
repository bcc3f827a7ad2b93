"""The end of an instance that dialled its gateway: dials again when the connection breaks, and goes on."""

import select
import socket
import ssl
import sys
from time import monotonic

import msgspec

from fairlead.engine.live.links.address import parse_address
from fairlead.engine.live.links.backoff import delays_s
from fairlead.engine.live.links.dial import HANDSHAKE_LIMIT_S, dial
from fairlead.engine.live.links.greeting import Credential, GreetingError
from fairlead.engine.live.links.messages import Attach, Refused, pack, to_instance
from fairlead.engine.live.links.reading import Reader, UnreachableError
from fairlead.engine.live.links.tls import TlsFiles, client_context
from fairlead.engine.live.values import Reference
from fairlead.engine.live.wire import Batch, Begin, Dial, Done, Failed, Frames, Ready, frame, order

_DETOUR_S = 30.0  # a node that was not reached is tried again after this


class DialledChannel:
    """The channel of an instance to a gateway on the same or another machine. Blocks, as an instance has one thread.

    Args:
        how: The gateway, and who this instance is.
        leash: The connection to the agent. Its end means that the instance is to end.
    """

    def __init__(self, how: Dial, leash: socket.socket) -> None:
        self._how = how
        self._leash = leash
        gateway = parse_address(how.gateway)
        files = TlsFiles(certfile=how.certfile, keyfile=how.keyfile, cacert=how.cacert, is_pinned=how.is_pinned)
        self._tls = client_context(files)
        self._gateway = msgspec.structs.replace(gateway, is_tls=self._tls is not None and not gateway.path)
        self._credential = Credential(how.identity, how.secret)
        self._reader = Reader(self._credential, self._tls)
        self._detours: dict[str, float] = {}  # by address of a node: until when the gateway is asked in its place
        self._frames = Frames()
        self._bodies: list[bytes] = []
        self._ready: Ready | None = None

    def open(self) -> None:
        """Dial the gateway. Ends the process where that is impossible."""
        self._connect()

    def receive(self) -> Begin | Batch | Dial | None:
        """The next message; None once the instance is to end."""
        while not self._bodies:
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                events = self._poll.poll()
                if any(descriptor == self._leash.fileno() for descriptor, _ in events):
                    return None
            try:
                data = self._socket.recv(1 << 18)
            except OSError:
                data = b""
            if data:
                self._bodies = self._frames.feed(data)
            else:
                self._connect()
        return order(self._bodies.pop(0))

    def send(self, message: Ready | Failed | Done) -> None:
        """Pass a message on. ValueError if it is too large."""
        data = frame(message)
        try:
            self._socket.sendall(data)
        except OSError:
            self._connect()  # it says `Ready` again; an answer to the former gateway is late, and this one drops it
            if not isinstance(message, Ready) or self._ready is None:
                self.send(message)
        if isinstance(message, Ready):
            self._ready = message

    def fetch(self, wanted: Reference) -> bytearray:
        """The bytes of a value that another node or the gateway holds. Raises LostValueError.

        They come straight from the node; through the gateway where this instance does not reach it, as last tried.
        """
        if not wanted.address:
            return self._reader.fetch(self._gateway, wanted.name, wanted.size, wanted.node)
        if monotonic() >= self._detours.get(wanted.address, 0.0):
            try:
                return self._reader.fetch(parse_address(wanted.address), wanted.name, wanted.size, wanted.node)
            except UnreachableError:
                self._detours[wanted.address] = monotonic() + _DETOUR_S
        return self._reader.fetch(self._gateway, wanted.name, wanted.size, wanted.node, wanted.home)

    def _connect(self) -> None:
        """Dial until the gateway takes this instance in. Ends the process if it will not, or after a while."""
        self._frames, self._bodies = Frames(), []
        until = monotonic() + self._how.adoption_s
        for delay_s in delays_s():
            try:
                self._attach()
                return
            except (OSError, GreetingError, ValueError) as error:
                if monotonic() > until:
                    sys.exit(f"the gateway at {self._gateway} could not be reached: {error}")
            if select.select([self._leash], [], [], delay_s)[0]:
                sys.exit(0)

    def _attach(self) -> None:
        connection = dial(self._gateway, self._credential, self._tls if self._gateway.is_tls else None)
        try:
            connection.settimeout(HANDSHAKE_LIMIT_S + self._how.adoption_s)  # it may have to wait for its agent
            connection.sendall(pack(Attach(self._how.key)))
            while not (bodies := self._frames.feed(_some(connection))):
                pass
            answer = to_instance.decode(bodies[0])
            if isinstance(answer, Refused):
                sys.exit(answer.reason)
            connection.settimeout(None)
            if self._ready is not None:
                connection.sendall(frame(self._ready))
        except BaseException:
            connection.close()
            raise
        self._bodies = bodies[1:]
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._leash, select.POLLIN)


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionResetError("it closed the connection")
    return data
