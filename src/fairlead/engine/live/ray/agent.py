"""The agent of a Ray node: `python -m fairlead.engine.live.ray.agent`, started by the node's `Keeper`.

It is the agent that `fairlead agent` runs. Its order comes as one line on standard input, so that the token is on no
command line and in no environment; the end of that input, which is also the end of its keeper, is the order to end.
"""

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from fairlead.app.secrets import take_secrets
from fairlead.engine.live.links.address import facing, listen_on, parse_address
from fairlead.engine.live.links.greeting import GreetingError
from fairlead.engine.live.links.tls import TlsFiles
from fairlead.engine.live.node.service import AgentOrder, AgentService
from fairlead.engine.live.process import say
from fairlead.engine.live.ray.messages import NodeOrder, to_agent
from fairlead.errors import FairleadError


def main() -> int:
    """Run the agent; gives the exit code."""
    text = sys.stdin.buffer.readline()
    if not text:
        return 1
    order = to_agent.decode(text)
    take_secrets()  # functions can read the environment of every process of their user
    try:
        folder = _folder(Path(order.folder))
        join = parse_address(order.join)
        with listen_on(facing(join), "the agent") as listening:
            plain = AgentOrder(
                join=join,
                token=order.token,
                node=order.node,
                folder=folder,
                tls=_files(order, folder),
                limits=order.limits,
                leave_after_s=order.leave_after_s,
                gpus=None,
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(AgentService(plain, listening, say)))
        shutil.rmtree(folder, ignore_errors=True)  # it has left: code, and the key of the links, are not to stay
        with suppress(OSError):  # another agent of this machine has a folder there
            folder.parent.rmdir()
    except (FairleadError, GreetingError, OSError) as error:
        say(f"the agent of node {order.node.name} ends: {error}")
        return 1
    return 0


async def _run(service: AgentService) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    os.set_blocking(0, False)

    def heard() -> None:
        with suppress(BlockingIOError):
            if not os.read(0, 4096):
                loop.remove_reader(0)
                stop.set()

    loop.add_reader(0, heard)
    await service.run(stop)


def _folder(folder: Path) -> Path:
    """A folder of this user alone. OSError where somebody else has it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{folder} must be a folder that only this user can open")
    return folder


def _files(order: NodeOrder, folder: Path) -> TlsFiles:
    if order.certificate is None or order.key is None:
        return TlsFiles()
    paths = {"cert.pem": order.certificate, "key.pem": order.key}
    for name, text in paths.items():
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
    certificate, key = (str(folder / name) for name in paths)
    return TlsFiles(certfile=certificate, keyfile=key, cacert=certificate, is_pinned=True)


if __name__ == "__main__":
    sys.exit(main())
