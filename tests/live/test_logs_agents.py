"""Lines of functions on the nodes of agents: the gateway has them, by request, also of a node that was killed."""

import json

from agent_processes import Cluster
from serving import wait_for

APP = """
import fcntl, struct, termios
import fairlead

@app.function()
def work(x):
    about = fairlead.context()
    print("attempt", about.attempt, "of", x)
    os.write(1, b"past Python\\n")
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.001)  # until it was read: longer than Fairlead would wait on a busy machine
    if x == "lost" and about.attempt == 1:
        time.sleep(600)
    return os.getpid()

app.workflow("work", work, slo="100s")
"""


def lines(served, id):
    reply = served.ask("GET", f"/v1/logs?request={id}")
    return [json.loads(line) for line in reply.body.splitlines()]


def test_the_gateway_has_the_lines_of_its_nodes(tmp_path):
    made = Cluster(tmp_path, ("a", "b"), code=APP)
    try:
        id = made.served.call("work", 1).json["id"]
        wait_for(lambda: len(lines(made.served, id)) == 2)
        assert {line["text"] for line in lines(made.served, id)} == {"attempt 1 of 1", "past Python"}
        wait_for(lambda: "work | attempt 1 of 1" in made.served.err)
        lost = made.served.send("work", "lost").json["id"]
        wait_for(lambda: len(lines(made.served, lost)) == 2)
        (node,) = {line["node"] for line in lines(made.served, lost)}
        made.agents[node].kill()
        assert made.served.wait_for_end(lost)["state"] == "completed"
        wait_for(lambda: len(lines(made.served, lost)) == 4)
        by_node = {line["node"]: line["text"] for line in lines(made.served, lost) if "attempt" in line["text"]}
        assert by_node == {node: "attempt 1 of lost", ({"a", "b"} - {node}).pop(): "attempt 2 of lost"}
    finally:
        made.end()
