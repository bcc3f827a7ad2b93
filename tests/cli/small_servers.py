"""Servers of a few lines, with or without TLS, that remember what they were sent."""

import fcntl
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

STATUS = {"uptime_s": 1.0, "is_ready": True, "is_draining": False, "apps": []}
SLOW_S = 0.05

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


def gateway_says(path: str) -> tuple[int, dict[str, str], object]:
    """What a gateway with one workflow of an objective of 20 ms, which takes 50 ms, would say."""
    answers = {
        "/v1/status": STATUS,
        "/v1/apps": {"apps": [{"name": "site", "workflows": ["slow"]}]},
        "/v1/apps/site": {"manifest": {"workflows": [{"name": "slow", "slo_s": 0.02}]}},
    }
    if path == "/v1/workflows/site.slow":
        sleep(SLOW_S)
    return 200, {}, answers.get(path, {})


class Server:
    """One that answers as `says`; `heard` are (path, headers, body)."""

    def __init__(self, says: Callable[[str], tuple[int, dict[str, str], object]], tls: ssl.SSLContext | None) -> None:
        heard = self.heard = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                status, headers, value = says(self.path)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                for name, text in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - the library's name

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = (
                64  # a load opens 32 connections at once: those beyond this queue would wait for seconds
            )

            def handle_error(self, *args: object) -> None:
                """Clients that hang up in the handshake are what some tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.http.server_port}"


@contextmanager
def serving(says=gateway_says, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(says, tls)
    thread = Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()


def make_certificate(folder: Path, name: str, names: str) -> tuple[Path, Path]:
    """A self-signed certificate for these names, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def state_of_a_gateway(folder: Path, url: str, *, pid: int | None = None, cacert: Path | None = None) -> Iterator[Path]:
    """A state folder as a running gateway has it: its file, and its lock, held until the end. Gives the file."""
    folder.mkdir(parents=True)
    told = {"pid": pid or os.getpid(), "url": url, **({} if cacert is None else {"cacert": str(cacert)})}
    file = folder / "gateway.json"
    file.write_text(json.dumps(told))
    file.chmod(0o600)
    with (folder / "gateway.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file
