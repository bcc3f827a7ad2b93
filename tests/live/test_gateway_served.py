"""The gateway in front of the real runtime: `fairlead serve`, with instances that are processes."""

import threading

import pytest
from serving import TOKEN, request_bytes, serving, wait_for, write_app

APP = """
import numpy as np


@app.function(vcpus=0.25)
def double(value):
    return value * 2


@app.function(vcpus=0.25)
def slow(value):
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return value


@app.function(vcpus=0.25)
def table(value):
    return {"grid": np.arange(6).reshape(2, 3), "raw": b"\\x00\\xff"}


app.workflow("twice", double >> double, slo="30s")
app.workflow("slow", slow, slo="30s")
app.workflow("table", table, slo="30s")
"""

OTHER = """
from fairlead.app import App

app = App("extra")


@app.function(vcpus=0.25)
def version(value):
    return [{number}, value]


app.workflow("version", version, slo="30s")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    app = write_app(folder / "app.py", APP)
    with serving(app, folder / "state", "--allow-deploy", token=TOKEN) as served:
        yield served


def test_a_call_runs_through_its_stages(served):
    answer = served.call("twice", 21)
    assert answer.status == 200, answer.body
    assert answer.json["output"] == 84
    assert answer.json["id"].startswith("demo-1-")
    assert answer.json["deadline_ms"] == pytest.approx(30_000)


def test_a_large_value_goes_in_and_out(served):
    text = "x" * 500_000  # beyond what is sent in line
    assert served.call("twice", text).json["output"] == text * 4


def test_arrays_and_bytes_have_a_json_form(served):
    assert served.call("table").json["output"] == {"grid": [[0, 1, 2], [3, 4, 5]], "raw": "AP8="}
    tensor = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}
    answer = served.ask("POST", "/v2/models/table/infer", {"inputs": [tensor]})
    assert answer.json["outputs"][0] == {
        "name": "grid",
        "shape": [2, 3],
        "datatype": "INT64",
        "data": [0, 1, 2, 3, 4, 5],
    }


def test_a_failing_function_gives_its_message(served):
    answer = served.call("twice", {"no": "number"})
    assert answer.status == 502
    assert "TypeError" in answer.message


def test_a_client_that_leaves_cancels_in_the_runtime(served):
    before, hold = served.workflow("slow")["cancelled"], served.state.with_name("hold")
    data = request_bytes("/v1/workflows/slow", b'{"input": 1}', f"authorization: Bearer {TOKEN}")
    hold.touch()
    with served.raw(data):
        wait_for(lambda: served.workflow("slow")["open"] == 1)
    wait_for(lambda: served.workflow("slow")["cancelled"] == before + 1)
    hold.unlink()


def test_an_app_is_replaced_under_load_and_nothing_is_dropped(served):
    put = served.ask("PUT", "/v1/apps/extra", {"source": OTHER.format(number=1)})
    assert put.status == 201, put.body
    answers, is_over = [], threading.Event()

    def load():
        connection = served.connect()
        try:
            while not is_over.is_set():
                answers.append(served.call("version", 0, connection=connection))
        finally:
            connection.close()

    callers = [threading.Thread(target=load) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        wait_for(lambda: len(answers) > 20)
        assert served.ask("PUT", "/v1/apps/extra", {"source": OTHER.format(number=2)}).status == 200
        wait_for(lambda: answers[-1].status == 200 and answers[-1].json["output"][0] == 2)
    finally:
        is_over.set()
        for caller in callers:
            caller.join()
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["output"][0] for answer in answers} == {1, 2}
    assert served.ask("DELETE", "/v1/apps/extra").status == 200
    assert served.call("version", 0).status == 404


def test_a_function_is_registered_alone_scaled_and_removed(served):
    source = "def handle(value):\n    return {'got': value}\n"
    assert served.ask("POST", "/system/functions", {"service": "alone", "source": source}).status == 202
    answer = served.ask("POST", "/function/alone", b"hello", headers={"content-type": "text/plain"})
    assert answer.headers["x-call-id"].startswith("alone-")
    assert answer.json == {"got": "hello"}
    assert served.ask("POST", "/system/scale-function/alone", {"replicas": 2}).status == 202

    def replicas():
        listed = served.ask("GET", "/system/functions").json
        return next(entry["availableReplicas"] for entry in listed if entry["name"] == "alone")

    wait_for(lambda: replicas() == 2, 60)
    assert served.ask("DELETE", "/system/functions", {"functionName": "alone"}).status == 202
    assert served.ask("POST", "/function/alone", b"1").status == 404


def test_an_asynchronous_call_ends(served):
    accepted = served.send("slow", 5)
    assert accepted.status == 202
    assert served.wait_for_end(accepted.json["id"])["state"] == "completed"
    assert served.ask("GET", f"/v1/requests/{accepted.json['id']}/result").json["output"] == 5


def test_the_metrics_tell_of_what_was_run(served):
    served.call("twice", 1)
    text = served.ask("GET", "/metrics").body.decode()
    assert 'fairlead_slo_attained_total{workflow="demo.twice"}' in text
    assert 'fairlead_predicted_latency_seconds{app="demo",function="double"}' in text
    assert 'fairlead_instances{app="demo",function="double",state="idle"}' in text
