"""A bucket on this machine: `s3rver`, an S3 server of npm, for as long as the experiment takes."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from fairlead.errors import FairleadError

FOLDER_VARIABLE = "FAIRLEAD_S3RVER"
"""The environment variable that names the folder into which npm installed s3rver; without it, s3rver is on the PATH."""

BUCKET = "videos"

_START_LIMIT_S = 60.0
_END_LIMIT_S = 10.0


class Bucket(NamedTuple):
    """A bucket that is served: its URL, the environment with which it can be used, and the server's process id."""

    url: str
    environment: Mapping[str, str]
    pid: int


def s3rver_command() -> list[str]:
    """How to start s3rver here. FairleadError, with how to get it, where it is not installed."""
    node = shutil.which("node")
    if node is None:
        raise FairleadError(
            "The object store of this experiment, s3rver, runs on Node.js, which is not installed. Install it with: "
            f"apt-get install nodejs npm; then: {_how_to_get_it()}"
        )
    folder = os.environ.get(FOLDER_VARIABLE)
    found = shutil.which("s3rver", path=str(Path(folder) / "node_modules" / ".bin") if folder else None)
    if found is None:
        where = f"not in {Path(folder) / 'node_modules'} ({FOLDER_VARIABLE})" if folder else "not on the PATH"
        raise FairleadError(f"The object store of this experiment, s3rver, is {where}. Get it with: {_how_to_get_it()}")
    return [found]


def _how_to_get_it() -> str:
    folder = os.environ.get(FOLDER_VARIABLE) or "FOLDER"
    return f"npm install --prefix {folder} s3rver; export {FOLDER_VARIABLE}={folder}"


@contextmanager
def bucket(folder: Path) -> Iterator[Bucket]:
    """A bucket whose objects are in a folder, at an address of this machine alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*s3rver_command(), "--directory", str(folder), "--address", "127.0.0.1", "--port", str(port)]
    log = folder.with_suffix(".log")
    folder.mkdir()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--silent", "--configure-bucket", BUCKET], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            _await(port, process, log)
            environment = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "S3RVER",
                "AWS_SECRET_ACCESS_KEY": "S3RVER",
            }
            yield Bucket(f"s3://{BUCKET}", environment, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = monotonic() + _START_LIMIT_S
    while monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            sleep(0.05)
        else:
            return
    said = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
    raise FairleadError(f"s3rver did not start: {said or 'it said nothing'}")
