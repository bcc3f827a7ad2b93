"""Apps at run time: deployed, replaced, scaled and removed through the API; the OpenFaaS shape of the same."""

import pytest
from gateway_world import SmallHost, running

TOKEN = "correct-horse-battery"
AUTH = {"Authorization": f"Bearer {TOKEN}"}

APP = """
from fairlead.app import App

app = App("pets")


@app.function()
def name(value):
    return value


app.workflow("greet", name, slo="1s")
"""


@pytest.fixture
def gateway(tmp_path):
    host = SmallHost({"shop.echo": lambda value, _: value, "shop.upper": lambda value, _: value.upper()})
    with running(host, tmp_path, token=TOKEN, allow_deploy=True) as gateway:
        yield gateway


def send(gateway, method, path, body=None, **headers):
    return gateway.send(method, path, body, {**AUTH, **headers})


def test_deploy_call_replace_and_remove(gateway):
    made = send(gateway, "POST", "/v1/apps", {"name": "pets", "source": APP})
    assert (made.status, made.headers["location"]) == (201, "/v1/apps/pets")
    assert made.json() == {"name": "pets", "policy": "fairlead", "workflows": ["greet"], "functions": ["name"]}
    assert send(gateway, "POST", "/v1/workflows/greet", {"input": "Ada"}).json()["output"] == "Ada"

    again = send(gateway, "POST", "/v1/apps", {"name": "pets", "source": APP})
    assert (again.status, again.code) == (409, "app_exists")

    longer = APP + 'app.workflow("bye", name)\n'
    replaced = send(gateway, "PUT", "/v1/apps/pets", {"source": longer})
    assert (replaced.status, replaced.json()["workflows"]) == (200, ["greet", "bye"])
    assert send(gateway, "POST", "/v1/workflows/bye", {"input": 1}).status == 200

    names = [app["name"] for app in send(gateway, "GET", "/v1/apps").json()["apps"]]
    assert names == ["shop", "pets"]
    detail = send(gateway, "GET", "/v1/apps/pets").json()
    assert detail["manifest"]["workflows"][0]["slo_s"] == 1.0
    assert detail["status"]["generation"] == 1

    assert send(gateway, "DELETE", "/v1/apps/pets").json() == {"name": "pets"}
    assert send(gateway, "DELETE", "/v1/apps/pets").status == 404
    assert send(gateway, "POST", "/v1/workflows/greet", {"input": "Ada"}).status == 404


def test_put_of_a_new_app_is_201(gateway):
    assert send(gateway, "PUT", "/v1/apps/pets", {"source": APP}).status == 201


def test_uploaded_code_is_kept_in_the_state_folder(gateway):
    send(gateway, "PUT", "/v1/apps/pets", {"source": APP})
    (file,) = (gateway.settings.state / "apps").iterdir()
    assert file.name.startswith("pets-")
    assert file.read_text() == APP


@pytest.mark.parametrize(
    ("name", "source", "status", "words"),
    [
        ("pets", "def (", 422, "pets.py"),
        ("pets", "x = 1", 422, ""),
        ("dogs", APP, 422, "declares the app 'pets'"),
        ("pets", "raise RuntimeError('no')", 422, "no"),
        ("../../etc/x", APP, 400, "name"),
        ("pets", "", 400, "source"),
    ],
    ids=["syntax", "no-app", "another-name", "raises", "traversal", "empty"],
)
def test_what_is_no_app_is_refused_and_leaves_nothing(gateway, name, source, status, words):
    answer = send(gateway, "POST", "/v1/apps", {"name": name, "source": source})
    assert answer.status == status
    assert words in answer.json()["error"]["message"]
    assert str(gateway.settings.state) not in answer.json()["error"]["message"]
    folder = gateway.settings.state / "apps"
    assert not folder.exists() or not list(folder.iterdir())
    assert send(gateway, "POST", "/v1/workflows/echo", {"input": 1}).status == 200


@pytest.mark.parametrize("settings", [{}, {"token": TOKEN}], ids=["no-token", "not-allowed"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/apps", {"name": "pets", "source": APP}),
        ("PUT", "/v1/apps/pets", {"source": APP}),
        ("POST", "/system/functions", {"service": "pets", "source": APP}),
        ("DELETE", "/v1/apps/shop", None),
        ("DELETE", "/v1/apps/none", None),
        ("DELETE", "/system/functions", {"functionName": "echo"}),
    ],
)
def test_deploying_and_removing_is_off_unless_it_was_asked_for(tmp_path, settings, method, path, body):
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path, **settings) as gateway:
        answer = send(gateway, method, path, body)
        assert (answer.status, answer.code) == (403, "deploy_off")
        assert not (tmp_path / "apps").exists()
        assert send(gateway, "POST", "/v1/workflows/echo", {"input": 1}).status == 200


def test_functions_are_listed_and_held_at_a_number(gateway):
    listed = send(gateway, "GET", "/v1/apps/shop/functions").json()["functions"]
    assert [entry["function"]["name"] for entry in listed] == ["echo", "upper"]
    assert send(gateway, "GET", "/v1/apps/shop/functions/echo").json()["status"]["waiting"] == 3
    path = "/v1/apps/shop/functions/echo/scale"
    assert send(gateway, "POST", path, {"instances": 4}).json()["instances"] == 4
    assert gateway.host.scaled == {("shop", "echo"): 4}
    assert send(gateway, "POST", path, {"instances": None}).status == 200
    assert gateway.host.scaled == {("shop", "echo"): None}
    for wrong in ({"instances": -1}, {"instances": 1.5}, {}, {"instances": "4"}):
        assert send(gateway, "POST", path, wrong).status == 400
    missing = send(gateway, "POST", "/v1/apps/shop/functions/ecco/scale", {"instances": 1})
    assert (missing.status, missing.code) == (404, "unknown_function")


def test_functions_are_brought_to_a_node_that_there_is(gateway):
    path = "/v1/apps/shop/functions/echo/move"
    moving = send(gateway, "POST", path, {"node": "local"})
    assert (moving.status, moving.json()) == (202, {"app": "shop", "function": "echo", "node": "local"})
    assert gateway.host.moved == {("shop", "echo"): "local"}
    missing = send(gateway, "POST", path, {"node": "nowhere"})
    assert (missing.status, missing.code) == (404, "unknown_node")
    for wrong in ({}, {"node": ""}, {"node": 1}, {"node": "local", "when": "now"}):
        assert send(gateway, "POST", path, wrong).status == 400
    assert send(gateway, "POST", "/v1/apps/shop/functions/ecco/move", {"node": "local"}).code == "unknown_function"


def test_a_function_is_registered_called_scaled_and_removed_as_in_openfaas(gateway):
    source = "def handle(value):\n    return value\n"
    body = {"service": "twin", "source": source, "image": "twin:latest", "envProcess": "python"}  # as OpenFaaS has them
    assert send(gateway, "POST", "/system/functions", body).status == 202
    assert send(gateway, "POST", "/system/functions", {"service": "twin", "source": source}).status == 409
    assert send(gateway, "PUT", "/system/functions", {"service": "twin", "source": source, "slo_ms": 250}).status == 202
    assert send(gateway, "GET", "/v1/apps/twin").json()["manifest"]["workflows"][0]["slo_s"] == 0.25

    listed = send(gateway, "GET", "/system/functions").json()
    assert [entry["name"] for entry in listed] == ["shop.echo", "shop.upper", "twin"]
    assert (listed[0]["invocationCount"], listed[0]["replicas"], listed[0]["availableReplicas"]) == (0, 2, 2)
    for entry in listed:
        called = send(gateway, "POST", f"/function/{entry['name']}", b"x", **{"Content-Type": "text/plain"})
        assert (called.status, called.body.lower()) == (200, b"x")
        assert send(gateway, "POST", f"/system/scale-function/{entry['name']}", {"replicas": 1}).status == 202
    gateway.host.scaled.clear()

    called = send(gateway, "POST", "/function/twin", b"[1, 2]", **{"Content-Type": "application/json"})
    assert called.json() == [1, 2]
    scaled = send(gateway, "POST", "/system/scale-function/twin", {"serviceName": "twin", "replicas": 3})
    assert (scaled.status, gateway.host.scaled) == (202, {("twin", "twin"): 3})
    assert send(gateway, "POST", "/system/scale-function/twin", {"serviceName": "x", "replicas": 3}).status == 409

    assert send(gateway, "DELETE", "/system/functions", {"functionName": "echo"}).code == "part_of_app"
    assert send(gateway, "DELETE", "/system/functions", {"functionName": "twin"}).status == 202
    assert send(gateway, "POST", "/function/twin", b"x").status == 404


def test_a_workflow_of_several_functions_is_listed_by_its_name_and_scaled_by_theirs(gateway):
    source = """
from fairlead.app import App

app = App("pair")


@app.function()
def one(value):
    return value


@app.function()
def two(value):
    return value


app.workflow("both", one >> two)
"""
    assert send(gateway, "PUT", "/v1/apps/pair", {"source": source}).status == 201
    assert "pair.both" in [entry["name"] for entry in send(gateway, "GET", "/system/functions").json()]
    refused = send(gateway, "POST", "/system/scale-function/pair.both", {"replicas": 1})
    assert (refused.status, refused.code) == (409, "part_of_app")
    assert "pair.one, pair.two" in refused.json()["error"]["message"]
    assert send(gateway, "POST", "/system/scale-function/pair.two", {"replicas": 1}).status == 202


def test_a_function_with_another_handler_and_one_without(gateway):
    source = "def shout(text):\n    return text\n"
    body = {"service": "loud", "source": source}
    assert send(gateway, "POST", "/system/functions", body).status == 422
    assert send(gateway, "POST", "/system/functions", {**body, "handler": "shout"}).status == 202
    assert send(gateway, "POST", "/system/functions", {**body, "handler": "a; import os"}).status == 400


@pytest.mark.parametrize(
    ("kind", "body", "expected_kind", "expected"),
    [
        ("text/plain", b"gr\xc3\xbcn", "text/plain; charset=utf-8", b"gr\xc3\xbcn"),
        ("application/octet-stream", b"\x00\xff", "application/octet-stream", b"\x00\xff"),
        ("application/json", b'{"a": [1, 2.5]}', "application/json", b'{"a":[1,2.5]}'),
    ],
)
def test_a_raw_body_goes_in_and_out_as_what_it_is(gateway, kind, body, expected_kind, expected):
    answer = send(gateway, "POST", "/function/echo", body, **{"Content-Type": kind})
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, expected_kind, expected)


def test_text_that_is_none_is_refused(gateway):
    assert send(gateway, "POST", "/function/echo", b"\xff", **{"Content-Type": "text/plain"}).status == 400


def test_an_asynchronous_function_call_gives_a_call_id(gateway):
    answer = send(gateway, "POST", "/async-function/echo", b"hello", **{"Content-Type": "text/plain"})
    assert answer.status == 202
    assert answer.headers["x-call-id"] == answer.json()["id"]


def test_the_first_page_names_what_is_served_and_how_to_call_it(tmp_path):
    with running(SmallHost({"shop.echo": lambda value, _: value, "pets.echo": lambda value, _: value}), tmp_path) as it:
        page = it.send("GET", "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        found = it.send("GET", "/", headers={"Accept": "application/json"}).json()
        strange = it.send("GET", "/", headers={"Host": "attacker.example"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    workflows = [workflow for app in found["apps"] for workflow in app["workflows"]]
    assert [workflow["path"] for workflow in workflows] == ["/v1/workflows/shop.echo", "/v1/workflows/pets.echo"]
    assert workflows[0]["example"].startswith(f"curl {it.url}/v1/workflows/shop.echo")
    assert "shop" not in strange.body.decode()  # a page of another site that has our address


def test_the_first_page_names_apps_only_to_callers_with_the_token(gateway):
    wants = {"Accept": "application/json"}
    assert "shop" not in gateway.send("GET", "/").body.decode()
    assert gateway.send("GET", "/", headers=wants).json()["apps"] is None
    told = send(gateway, "GET", "/", **wants).body.decode()
    assert "$FAIRLEAD_TOKEN" in told
    assert TOKEN not in told
