"""A function that calls an HTTP server over the loopback interface: one of its own, on a port that is free."""

from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from fairlead.learn.functions.texts import Answer

_LIMIT_S = 30.0


def endpoint_work(size: int) -> Answer:
    """Start a server, ask it so many tens of things over one connection, and add up the answers.

    Client and server are two threads of one process, of which one waits whenever the other works.
    """
    total = answered = 0
    with HTTPServer(("127.0.0.1", 0), _Doubling) as server:
        server.timeout = _LIMIT_S
        thread = Thread(target=server.handle_request, daemon=True)  # one connection, with all its requests
        thread.start()
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=_LIMIT_S)
        for i in range(10 * size):
            connection.request("GET", f"/{i}")
            reply = connection.getresponse()
            total += int(reply.read())
            answered += reply.status == 200
        connection.close()
        thread.join(_LIMIT_S)
    return {"answered": answered, "sum": total}


class _Doubling(BaseHTTPRequestHandler):
    """Answers GET /n with twice n."""

    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_S
    # Head and body go out as two writes; with Nagle's rule the second would wait 40 ms for the first one's receipt.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer one request."""
        body = str(2 * int(self.path[1:])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
