"""An instance that dials its gateway: `python -m fairlead.engine.live.links.instance FD PID`, started by an agent.

FD is the connection to the agent: it brings the address of the gateway and a credential, which so appear on no command
line and in no environment. Its end is the order to end.
"""

import socket
import sys

from fairlead.engine.live.links.dialled import DialledChannel
from fairlead.engine.live.wire import Begin, Channel, Dial
from fairlead.engine.live.worker import die_with, work


def main(descriptor: int, agent: int) -> None:
    """Serve whatever gateway is at the address, until the agent of this process id ends this instance."""
    die_with(agent)
    with socket.socket(fileno=descriptor) as leash:
        orders = Channel(leash)
        dial = orders.receive()
        begin = orders.receive()
        if isinstance(dial, Dial) and isinstance(begin, Begin):
            channel = DialledChannel(dial, leash)
            channel.open()
            work(channel, begin, dial.home, channel.fetch)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
