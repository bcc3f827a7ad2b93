"""A served app that is watched: its lines by request, its access log, its traces, and the operators' files."""

import gzip
import json
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from serving import serving, wait_for, write_app

ROOT = Path(__file__).resolve().parents[2]
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
APP = """
import contextvars, fcntl, logging, signal, struct, subprocess, termios, threading
import fairlead

logging.basicConfig(level="INFO", format="%(name)s: %(message)s")
print("imported")

@app.function()
def speak(x):
    print("printed", x)
    sys.stderr.write("half a")
    sys.stderr.write(" line")
    logging.getLogger("shop").info("logged %s", x)
    subprocess.run(["echo", f"from a child {x}"], check=True)
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.001)  # until it was read: longer than Fairlead would wait on a busy machine
    known = threading.Thread(target=contextvars.copy_context().run, args=(print, "from a thread", x))
    known.start()
    known.join()
    if x == "fails":
        raise KeyError("no such thing")
    return fairlead.context().id

@app.function(batch=8)
def together(xs):
    time.sleep(0.2)  # so that the next ones form a batch
    print("of", len(xs))
    return [one.id for one in fairlead.contexts()]

@app.function()
def dies(x):
    print("attempt", fairlead.context().attempt)
    if fairlead.context().attempt == 1:
        os.write(2, b"the last words\\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()

@app.function()
def floods(seconds):
    until = time.time() + seconds
    while time.time() < until:
        print("x" * 99)
        os.write(1, b"y" * 99 + b"\\n")
    return "done"

def exporting():
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(os.environ["RECEIVER"] + "/v1/traces")))
    return provider.get_tracer("shop")

from opentelemetry import trace

@app.function(setup=exporting)
def first(tracer, x):
    with tracer.start_as_current_span("own work"):
        return x + 1

@app.function()
def second(x):
    return x + 1

@app.function()
def third(x):
    return [x + 1, fairlead.context().trace]

app.workflow("speak", speak, slo="20s")
app.workflow("together", together, slo="20s")
app.workflow("dies", dies, slo="20s")
app.workflow("floods", floods, slo="60s")
app.workflow("three", first >> second >> third, slo="20s")
"""


class Receiver:
    """An OTLP receiver over HTTP, as the service definitions of opentelemetry-proto have it."""

    def __init__(self):
        self.spans = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    data = gzip.decompress(data)
                if self.path == "/v1/traces":
                    told = ExportTraceServiceRequest.FromString(data)
                    receiver.spans += [
                        span for about in told.resource_spans for scope in about.scope_spans for span in scope.spans
                    ]
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *about):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, trace):
        """The spans of a trace, by name."""
        found = {}
        for span in self.spans:
            if span.trace_id.hex() == trace:
                found.setdefault(span.name, []).append(span)
        return found

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory, receiver):
    folder = tmp_path_factory.mktemp("shop")
    app = write_app(folder / "app.py", APP, "shop")
    options = ("--otel", receiver.url, "--access-log", "json", "--log-mb", "2")
    with serving(app, folder / "state", *options, env={"RECEIVER": receiver.url}) as served:
        yield served


def lines(served, **asked):
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    reply = served.ask("GET", f"/v1/logs?{query}")
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()]


def words(found):
    return [(line["stream"], line["level"], line["text"]) for line in found]


def test_what_a_function_writes_is_found_by_its_request(shop):
    id = shop.call("speak", 1).json["output"]
    shop.call("speak", 2)
    wait_for(lambda: len(lines(shop, request=id)) >= 5)
    found = lines(shop, request=id)
    assert sorted(words(found), key=str) == sorted(
        [
            ("stdout", None, "printed 1"),
            ("stderr", None, "half a line"),
            ("log", "INFO", "shop: logged 1"),
            ("stdout", None, "from a child 1"),
            ("stdout", None, "from a thread 1"),
        ],
        key=str,
    )
    assert {(line["app"], line["function"], line["node"], line["request"]) for line in found} == {
        ("shop", "speak", "local", id)
    }
    assert ("stdout", None, "imported") in words(lines(shop, function="speak"))
    wait_for(lambda: "speak | printed 1" in shop.err)


def test_lines_are_there_when_the_answer_is(shop):
    for number in range(20):
        id = shop.call("speak", number).json["output"]
        assert ("stdout", None, f"printed {number}") in words(lines(shop, request=id))


def test_a_failure_has_its_traceback_in_the_answer_and_in_the_log(shop):
    reply = shop.call("speak", "fails")
    assert reply.status == 502
    told = reply.json["error"]
    assert told["traceback"].startswith("Traceback (most recent call last):\n")
    assert told["traceback"].endswith("KeyError: 'no such thing'")
    assert "engine/live" not in told["traceback"]  # only the user's own code
    assert ("log", "ERROR", told["traceback"]) in words(lines(shop, request=told["id"]))


def test_the_lines_of_a_batch_have_all_its_requests(shop):
    ids = [shop.send("together", number).json["id"] for number in range(6)]
    for id in ids:
        assert shop.wait_for_end(id)["state"] == "completed"
    found = [line for id in ids for line in lines(shop, request=id)]
    assert {
        id for line in found for id in ([line["request"]] if isinstance(line["request"], str) else line["request"])
    } == set(ids)
    batches = [line for line in found if isinstance(line["request"], list)]
    assert batches
    assert all(line["text"] == f"of {len(line['request'])}" for line in batches)
    assert lines(shop, request=batches[0]["run"][0])  # by the name in the records of the run, too


def test_a_request_keeps_its_id_on_another_instance(shop):
    reply = shop.call("dies")
    assert reply.status == 200, reply.body
    id = reply.json["id"]
    wait_for(lambda: len(lines(shop, request=id)) >= 3)
    found = lines(shop, request=id)
    assert sorted(line["text"] for line in found) == ["attempt 1", "attempt 2", "the last words"]
    assert len({line["instance"] for line in found}) == 2
    assert "the last words" in shop.err  # in the gateway's own log, with how the instance ended


def test_a_follower_gets_what_comes(shop):
    with shop.raw(b"GET /v1/logs?follow=1&limit=1&function=speak HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n") as connection:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(1 << 16)
        shop.call("speak", "followed")
        while b"printed followed" not in received:
            data = connection.recv(1 << 16)
            assert data, received
            received += data
    assert b"application/x-ndjson" in received
    assert received.count(b"printed followed") == 1


@pytest.mark.parametrize("query", ["limit=0", "limit=many", "since=x", "follow=2", "app=a&app=b", "what=1", "app"])
def test_a_wrong_query_is_refused_with_a_reason(shop, query):
    reply = shop.ask("GET", f"/v1/logs?{query}")
    assert reply.status == 400
    assert reply.json["error"]["code"] == "invalid_query"


def test_a_flood_is_bounded_and_counted_and_others_are_served_meanwhile(shop):
    flood = shop.send("floods", 2.0).json["id"]
    ended = threading.Event()
    threading.Thread(target=lambda: (shop.wait_for_end(flood), ended.set())).start()
    answers = 0
    while not ended.is_set():
        assert shop.call("speak", answers).status == 200
        answers += 1
    assert answers > 3
    dropped = re.compile(r"(\d+) lines dropped")
    wait_for(lambda: any(dropped.match(line["text"]) for line in lines(shop, function="floods", limit=10_000)))
    kept = list((shop.state / "logs").iterdir())
    assert sum(file.stat().st_size for file in kept) <= 2 << 20
    assert len(kept) > 3


def test_the_access_log_has_one_line_per_request(shop):
    id = shop.call("speak", 1, headers={"x-request-id": "mine-1"}).json["id"]
    missing = shop.ask("GET", "/nowhere?token=secret", headers={"x-request-id": "mine-2"})
    assert missing.status == 404
    wait_for(lambda: "mine-2" in shop.out)
    told = [json.loads(line) for line in shop.out.splitlines() if line.startswith("{")]
    (called,) = [line for line in told if line["request_id"] == "mine-1"]
    assert (called["method"], called["path"], called["status"]) == ("POST", "/v1/workflows/speak", 200)
    assert called["id"] == id
    assert called["ms"] > 0
    (other,) = [line for line in told if line["request_id"] == "mine-2"]
    assert (other["path"], other["status"], other["id"]) == ("/nowhere", 404, None)


# --- traces --------------------------------------------------------------------------------------------------------


def test_a_request_is_one_trace_from_its_caller_to_its_functions(shop, receiver):
    reply = shop.call("three", 1, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    number, handed_on = reply.json["output"]
    assert number == 4
    wait_for(lambda: len(receiver.of(TRACE).get("run", ())) == 3 and "own work" in receiver.of(TRACE))
    spans = receiver.of(TRACE)
    (request,) = spans["three"]
    assert request.parent_span_id.hex() == SPAN
    assert len(spans["admission"]) == 1
    assert {span.parent_span_id for name in ("wait", "run", "admission") for span in spans[name]} == {request.span_id}
    runs = {attributes(span)["fairlead.stage"]: span for span in spans["run"]}
    assert set(runs) == {"first", "second", "third"}
    assert handed_on == f"00-{TRACE}-{runs['third'].span_id.hex()}-01"
    (own,) = spans["own work"]
    assert own.parent_span_id == runs["first"].span_id
    assert attributes(request)["fairlead.request"] == reply.json["id"]
    inside = [span for name in ("wait", "run", "admission") for span in spans[name]]
    for span in inside:
        assert request.start_time_unix_nano - 1000 <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano + 1000
    order = [runs[name] for name in ("first", "second", "third")]
    for former, latter in pairwise(order):
        assert former.end_time_unix_nano <= latter.start_time_unix_nano + 1000
    assert runs["first"].start_time_unix_nano <= own.start_time_unix_nano


def test_a_lost_instance_and_an_asynchronous_request_are_traced_too(shop, receiver):
    trace = "1" * 31 + "2"
    headers = {"traceparent": f"00-{trace}-{SPAN}-01", "content-type": "application/json"}
    id = shop.ask("POST", "/v1/workflows/dies/async", {"input": None}, headers=headers).json["id"]
    assert shop.wait_for_end(id)["state"] == "completed"
    wait_for(lambda: "dies" in receiver.of(trace))
    spans = receiver.of(trace)
    former, latter = sorted(spans["run"], key=lambda span: span.start_time_unix_nano)
    assert former.status.message == "its instance was lost"
    assert latter.status.code == 0
    assert attributes(latter)["fairlead.attempt"] == "2"
    assert attributes(spans["dies"][0])["fairlead.request"] == id


def test_a_caller_that_does_not_sample_is_not_traced_but_its_trace_goes_on(shop, receiver):
    trace = "2" * 32
    given = f"00-{trace}-{SPAN}-00"
    assert shop.call("three", 1, headers={"traceparent": given}).json["output"][1] == given
    before = len(receiver.spans)
    shop.call("three", 1)
    wait_for(lambda: len(receiver.spans) > before)  # what came later has arrived
    assert receiver.of(trace).keys() <= {"own work"}


# --- what operators get --------------------------------------------------------------------------------------------

RULES = ROOT / "deploy" / "prometheus" / "fairlead.rules.yaml"
BOARD = ROOT / "deploy" / "grafana" / "fairlead.json"
GROUPED = re.compile(r"\bby \(([^)]*)\)")
MATCHED = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"")


def test_rules_and_dashboard_name_metrics_and_labels_that_there_are(shop):
    shop.call("speak", 1)
    text = shop.ask("GET", "/metrics").body.decode()
    families = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    there = {*families, *(f"{name}_bucket" for name, kind in families.items() if kind == "histogram")}
    labels = {*re.findall(r"[{,](\w+)=\"", text), "instance", "node", "outcome"}  # of this scrape; a cache has outcomes
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    board = json.loads(BOARD.read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked = [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    expressions = [rule["expr"] for rule in rules] + shown + asked
    assert len(expressions) > 40
    for expression in expressions:
        names = set(re.findall(r"\bfairlead[\w:]*", expression))
        assert names <= there | recorded, (expression, names - there - recorded)
        named = {name.strip() for group in GROUPED.findall(expression) for name in group.split(",")}
        assert named | set(MATCHED.findall(expression)) <= labels, expression
    assert {"severity"} == {name for rule in rules for name in rule.get("labels", ())}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("what", [("check", "rules", RULES), ("test", "rules", RULES.with_suffix(".test.yaml"))])
def test_promtool_accepts_the_rules(what):
    done = subprocess.run(["promtool", *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def attributes(span):
    return {
        each.key: each.value.string_value or str(each.value.int_value or each.value.double_value)
        for each in span.attributes
    }
