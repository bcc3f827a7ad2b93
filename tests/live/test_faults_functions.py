"""Functions that raise, hang, leak, exit, crash or print rubbish: the caller is told, and the next call works."""

import os

import pytest
from serving import Serving, is_alive, kill, serving, wait_for, write_app

APP = """
from multiprocessing import Process

@app.function
def echo(x):
    return x

@app.function
def whoami(x):
    return os.getpid()

@app.function(warm=0)
def picky(x):
    if x == "raise":
        raise KeyError("no such thing")
    if x == "exit":
        sys.exit(7)
    if x == "exit at once":
        os._exit(9)
    if x == "segfault":
        import ctypes
        ctypes.string_at(0)
    if x == "unsendable":
        return object()
    if x == "deep":
        value = []
        for _ in range(100_000):
            value = [value]
        return value
    return x

@app.function(warm=0, run_limit_s=2)
def hang(x):
    while x:
        time.sleep(1)
    return x

@app.function(warm=0, run_limit_s=2)
def deaf(x):
    import signal
    for sign in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(sign, signal.SIG_IGN)
    while x:
        pass
    return x

@app.function(warm=0, memory_gb=0.125)
def leak(x):
    kept = []
    while x:
        kept.append(bytes(1 << 20))
    return x

@app.function(warm=0)
def chatty(x):
    print("hello " * 50_000, flush=True)
    sys.stderr.buffer.write(bytes(range(256)) * 1000)
    os.write(1, b"\\xff\\x00\\n" * 100_000)
    os.write(2, bytes(100_000))
    return x

@app.function(warm=0)
def rude(x):
    for descriptor in range(3, 256):
        try:
            os.write(descriptor, b"\\x03\\0\\0\\0abc" if x else b"")
        except OSError:
            pass
    time.sleep(0.2 if x else 0)
    return x

@app.function(warm=0)
def tidy(x):
    if x:
        os.closerange(3, 4096)  # as who becomes a daemon does
        time.sleep(60)
    return x

@app.function(batch=4, warm=0)
def miscounting(items):
    return items[1:] if items[0] == "few" else 42 if items[0] == "none" else items

@app.function(batch=4, warm=0)
def one_by_one(items):
    return [ValueError(f"not {item}") if item == "bad" else item for item in items]

@app.function(warm=0)
def parent(x):
    child = Process(target=time.sleep, args=(600,), daemon=False)
    child.start()
    if x:
        return [os.getpid(), child.pid]
    os._exit(1)

@app.function(warm=0)
def large(n):
    return "x" * n

for function in list(app.functions.values()):
    app.workflow(function.name, function)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    with serving(write_app(folder / "app.py", APP), folder / "state", "--policy", "fifo") as served:
        yield served


def line_of(text: str) -> int:
    head = 5  # lines that `write_app` puts before the text
    return head + 1 + next(i for i, line in enumerate(APP.splitlines()) if text in line)


def works(world: Serving, workflow: str, value: object) -> None:
    reply = world.call(workflow, value)
    assert (reply.status, reply.json.get("output")) == (200, value)


def test_a_function_that_raises_gives_502_with_its_message_and_the_users_own_line(world):
    reply = world.call("picky", "raise")
    assert reply.status == 502
    assert f"KeyError: 'no such thing' (app.py, line {line_of('raise KeyError')})" in reply.message
    works(world, "picky", 1)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("exit", "code 7"),
        ("exit at once", "code 9"),
        ("segfault", "SIGSEGV"),
        ("unsendable", "a value of type object cannot be passed on"),
        ("deep", "recursion"),
    ],
)
def test_a_function_that_ends_its_process_or_returns_what_cannot_be_sent_is_a_failure_that_says_so(world, value, why):
    reply = world.call("picky", value)
    assert reply.status == 502
    assert why in reply.message
    works(world, "picky", 1)


@pytest.mark.parametrize("function", ["hang", "deaf"])
def test_a_function_that_hangs_is_ended_at_its_limit_and_the_next_call_works(world, function):
    reply = world.call(function, 1)
    assert reply.status == 502
    assert "longer than 2 s" in reply.message
    works(world, function, 0)


def test_a_function_that_leaks_is_ended_at_its_memory_limit_and_the_error_says_so(world):
    reply = world.call("leak", 1)
    assert reply.status == 502
    assert "more memory than its limit of 0.125 GB" in reply.message or "MemoryError" in reply.message
    works(world, "leak", 0)


def test_a_function_that_prints_much_and_binary_is_answered_all_the_same(world):
    works(world, "chatty", 1)
    works(world, "chatty", 2)


def test_a_function_that_writes_into_the_channel_itself_fails_alone(world):
    reply = world.call("rude", 1)
    assert reply.status == 502
    assert "it broke its channel" in reply.message
    works(world, "rude", 0)
    works(world, "echo", 1)


def test_a_function_that_closes_its_channel_is_ended_soon(world):
    reply = world.call("tidy", 1)
    assert reply.status == 502
    assert "it closed its channel" in reply.message
    works(world, "tidy", 0)


@pytest.mark.parametrize(
    ("value", "why"),
    [("few", "was called with 1 and returned 0 results"), ("none", "must return a list; got int")],
)
def test_a_batched_function_that_returns_the_wrong_count_fails_and_says_how_many(world, value, why):
    reply = world.call("miscounting", value)
    assert reply.status == 502
    assert why in reply.message
    works(world, "miscounting", "fine")


def test_an_exception_in_the_place_of_one_output_fails_only_that_invocation(world):
    reply = world.call("one_by_one", "bad")
    assert reply.status == 502
    assert "ValueError: not bad" in reply.message
    works(world, "one_by_one", "good")


def test_children_of_an_instance_are_gone_with_it(world):
    before = set(world.instances)
    instance, child = world.call("parent", 1).json["output"]
    assert is_alive(child)
    kill(instance)
    wait_for(lambda: not is_alive(child))
    assert world.call("parent", 0).status == 502  # its instances exit, each with a child
    wait_for(lambda: set(world.instances) <= before)
    wait_for(lambda: len(world.tree) == 2 + len(world.instances), why=lambda: f"left over: {world.tree}")


def test_a_large_value_goes_through_shared_memory_and_leaves_nothing_there(world):
    reply = world.call("large", 3_000_000)
    assert (reply.status, len(reply.json["output"])) == (200, 3_000_000)
    folder = next(
        f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith(f"fairlead-{world.gateway}-")
    )
    wait_for(lambda: not os.listdir(folder))


def test_an_idle_instance_that_is_killed_is_replaced(world):
    gateway = world.gateway
    for _ in range(10):  # the next call may find it before, while or after its end is seen
        first = world.call("whoami").json["output"]
        kill(first)
        reply = world.call("whoami")
        assert (reply.status, reply.json.get("output") != first) == (200, True)
        wait_for(lambda pid=first: not is_alive(pid))
    assert world.gateway == gateway
