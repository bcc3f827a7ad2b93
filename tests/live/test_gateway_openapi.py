"""The OpenAPI document: complete, and true of every answer (schemathesis)."""

import re
from pathlib import Path

import pytest
import schemathesis
from gateway_world import SmallHost, running
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fairlead.engine.live.gateway import endpoints
from fairlead.engine.live.gateway.app import ENDPOINTS
from fairlead.engine.live.gateway.openapi import HEADERS, document
from fairlead.engine.live.gateway.settings import LIMITS

TOKEN = "a-token-of-some-length"
KNOWN = {"node": "n0", "name": "echo", "app": "shop", "function": "echo", "model": "echo", "version": "1"}
KNOWN |= {"file": "app.js", "workflow": "echo"}
ENDLESS = ("GET /v1/dashboard/events",)  # answers that a client must leave: test_dashboard has them
DOCUMENT = document(ENDPOINTS)
API = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {operation.label: operation for result in API.get_all_operations() if (operation := result.ok())}
BRIEF = settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    host = SmallHost({"shop.echo": lambda value, _: value})
    with running(host, tmp_path_factory.mktemp("state"), token=TOKEN) as gateway:
        yield gateway


def test_the_document_names_every_endpoint():
    named = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert named == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert len(OPERATIONS) == len(ENDPOINTS)


@pytest.mark.parametrize("label", [label for label in OPERATIONS if label not in ENDLESS])
def test_every_answer_to_a_valid_request_is_as_the_document_says(gateway, label):
    # Whether a tensor has as many elements as its shape says is more than a schema can tell.
    excluded = [positive_data_acceptance] if label.endswith("/infer") else []
    check_answers(gateway, label, GenerationMode.POSITIVE, excluded)


@pytest.mark.parametrize("label", [label for label, operation in OPERATIONS.items() if operation.body])
def test_every_answer_to_an_invalid_request_is_as_the_document_says(gateway, label):
    check_answers(gateway, label, GenerationMode.NEGATIVE, [])


def check_answers(gateway, label, mode, excluded):
    operation = OPERATIONS[label]

    @BRIEF
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def check(case, is_known):
        if is_known:  # else nearly every answer is that there is no such name
            case.path_parameters = {
                name: KNOWN.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
        if "follow" in (case.query or {}):
            case.query["follow"] = 0  # an answer without an end cannot be checked
        # Blanks around a value are no part of it (RFC 9110, 5.5), so they do not make it wrong.
        assume(all(value == value.strip(" \t") for value in (case.headers or {}).values()))
        case.call_and_validate(
            base_url=gateway.url, headers={"Authorization": f"Bearer {TOKEN}"}, excluded_checks=excluded
        )

    check()


def test_the_reference_page_is_complete(gateway):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for endpoint in ENDPOINTS:
        row = next(line for line in page.splitlines() if f"`{endpoint.method} {endpoint.path}`" in line)
        _, _, _, answers, errors, _ = (cell.strip() for cell in row.split("|"))
        assert answers == ", ".join(map(str, sorted(endpoint.answers)))
        assert errors == (", ".join(map(str, sorted(set(endpoint.errors)))) or "–")
    for name in HEADERS:
        assert f"`{name}`" in page
    for name in LIMITS:
        assert f"`{name}`" in page
    text = gateway.send("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).body.decode()
    for line in text.splitlines():
        if line.startswith("# TYPE fairlead"):
            assert f"`{line.split()[2]}`" in page


def test_the_reference_page_names_every_error_code():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    sources = Path(endpoints.__file__).parent.glob("*.py")
    made = re.compile(r"Problem\(\s*(\d+),\s*\"(\w+)\"")
    found = {tuple(filter(None, match)) for source in sources for match in made.findall(source.read_text("utf-8"))}
    assert len(found) > 30
    for status, code in found:
        row = next(line for line in page.splitlines() if line.startswith(f"| {status} |"))
        assert f"`{code}`" in row, (status, code)
