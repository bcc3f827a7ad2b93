"""An agent that joins: what it offered and what ended meanwhile."""

from fairlead.engine.live.links import control
from fairlead.engine.live.node.passing import Passing
from fairlead.engine.live.node.service import AgentService
from fairlead.engine.live.store import Store


class Sent:
    """Takes what an agent sends."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def send(self, data: bytes) -> None:
        self.messages.append(control.from_agent.decode(data[4:]))


def test_an_instance_that_ended_between_hello_and_welcome_is_reported(tmp_path):
    agent = object.__new__(AgentService)  # without a gateway to dial
    agent._passing = Passing(Store(tmp_path), agent._say)
    agent._epoch, agent._specs, agent._offered = 0, {}, ("1.7",)
    sent = Sent()
    agent._take_welcome(control.Welcome(1, ("1.7",), 0.5, 4.0, 60.0), sent)
    assert [message.key for message in sent.messages] == ["1.7"]
