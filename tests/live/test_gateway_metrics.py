"""/metrics, /v1/status and /docs: the numbers are those of the requests that were sent."""

import ast
from pathlib import Path

import pytest
from gateway_world import Refuse, SmallHost, running, wait_until
from prometheus_client.parser import text_string_to_metric_families

import fairlead.policy
from fairlead.engine.live.gateway.app import ENDPOINTS
from fairlead.engine.live.gateway.reasons import CODES, code_of, code_of_sentence
from fairlead.engine.live.gateway.tallies import BOUNDS_S, Tallies
from fairlead.engine.live.values import Ending


def refuse(value, _):
    raise Refuse("rejected", f"{value} invocations wait already", 0.5)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    functions = {
        "shop.echo": lambda value, _: value,
        "shop.full": refuse,
        "shop.boom": lambda value, _: 1 / 0,
    }
    with running(SmallHost(functions), tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


def metrics(gateway):
    answer = gateway.send("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_every_request_is_counted_by_how_it_ended(gateway):
    for number in range(5):
        gateway.send("POST", "/v1/workflows/echo", {"input": number})
        gateway.send("POST", "/v1/workflows/full", {"input": number})
    gateway.send("POST", "/v1/workflows/boom", {"input": 0})
    gateway.send("POST", "/v1/workflows/echo", {"input": 0, "deadline_ms": 1e-6})  # answered, and late
    found = metrics(gateway)
    assert found["fairlead_requests_total", "completed", "shop.echo"] == 6
    assert found["fairlead_requests_total", "rejected", "shop.full"] == 5
    assert found["fairlead_requests_total", "failed", "shop.boom"] == 1
    assert found["fairlead_slo_attained_total", "shop.echo"] == 5
    assert found["fairlead_slo_violated_total", "service", "shop.echo"] == 1
    assert found["fairlead_slo_violated_total", "rejected", "shop.full"] == 5
    assert found["fairlead_slo_violated_total", "failed", "shop.boom"] == 1
    assert found["fairlead_rejected_total", "queue_full", "shop.full"] == 5  # one label, whatever the number
    assert found["fairlead_cost_usd_total", "shop.echo"] == pytest.approx(6 * 0.25)
    assert found["fairlead_request_latency_seconds_count", "shop.echo"] == 6
    assert found["fairlead_request_latency_seconds_bucket", "+Inf", "shop.echo"] == 6


def test_what_the_runtime_tells_of_itself_is_shown(gateway):
    found = metrics(gateway)
    assert found["fairlead_queue_length", "echo", "shop"] == 3
    assert found["fairlead_instances", "busy", "echo", "shop"] == 1
    assert found["fairlead_predicted_latency_seconds", "echo", "shop"] == 0.02
    assert found["fairlead_observed_to_predicted_ratio", "echo", "shop"] == pytest.approx(1.5)
    assert found["fairlead_slo_seconds", "shop.echo"] == 1.0
    assert found["fairlead_ready",] == 1


def test_journal_process_and_loop_are_shown(gateway):
    gateway.send("POST", "/v1/workflows/echo/async", {"input": 1})
    wait_until(lambda: metrics(gateway)["fairlead_journal_finished",] == 1)
    found = metrics(gateway)
    assert found["fairlead_journal_commits_total",] >= 2
    assert found["process_resident_memory_bytes",] > 1e6
    assert found["process_open_fds",] > 3
    assert found["fairlead_gateway_connections",] >= 1
    assert 0 <= found["fairlead_event_loop_lag_seconds",] < 60


def test_the_status_is_the_hosts_own(gateway):
    status = gateway.send("GET", "/v1/status").json()
    assert status["is_ready"] is True
    assert [workflow["name"] for workflow in status["apps"][0]["workflows"]] == ["echo", "full", "boom"]


def test_the_page_names_every_endpoint_and_asks_for_nothing_from_elsewhere(gateway):
    answer = gateway.send("GET", "/docs")
    page = answer.body.decode()
    assert all(endpoint.path in page for endpoint in ENDPOINTS)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def ending(outcome="completed", *, latency_s=0.5, deadline_s=1.0, reason=None):
    return Ending(
        request=1, workflow="w", outcome=outcome, arrival=0.0, end=latency_s, deadline=deadline_s, reason=reason
    )


def test_every_series_is_there_before_its_first_event(tmp_path):
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path) as gateway:
        found = metrics(gateway)
    zeros = [
        *(("fairlead_requests_total", outcome) for outcome in ("completed", "failed", "rejected", "dropped")),
        *(("fairlead_slo_violated_total", cause) for cause in ("queue", "cold", "service", "rejected", "dropped")),
        *(("fairlead_rejected_total", code) for code in CODES),
    ]
    for name, label in zeros:
        assert found[name, *sorted((label, "shop.echo"))] == 0
    assert found["fairlead_slo_attained_total", "shop.echo"] == 0
    assert found["fairlead_cost_usd_total", "shop.echo"] == 0
    assert found["fairlead_request_latency_seconds_count", "shop.echo"] == 0
    for status in ("202", "400", "404", "429", "502", "503", "504"):
        assert found["fairlead_http_responses_total", status] == 0


def test_http_answers_are_counted_by_status(tmp_path):
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path) as gateway:
        before = metrics(gateway)
        for _ in range(3):
            gateway.send("POST", "/v1/workflows/echo", {"input": 1})
        gateway.send("GET", "/nothing")
        gateway.raw(b"NONSENSE\r\n\r\n")
        after = metrics(gateway)
    grown = {key[1]: after[key] - before[key] for key in before if key[0] == "fairlead_http_responses_total"}
    assert grown == {status: {"200": 4, "404": 1, "400": 1}.get(status, 0) for status in grown}  # 200: a scrape too


def test_there_is_a_bucket_at_each_workflows_slo():
    tallies = Tallies()
    tallies.serve({"shop.w": 0.15})
    for latency_s in (0.12, 0.15, 0.16, 0.3):
        tallies.ended("shop.w", ending(latency_s=latency_s), 1)
    tally = tallies.of("shop.w")
    counts = dict(zip(tally.bounds_s, tally.buckets, strict=False))
    assert (counts[0.15], counts[0.25], counts[0.5]) == (2, 1, 1)


def test_a_new_slo_moves_its_bucket_and_loses_no_count():
    tallies = Tallies()
    tallies.serve({"shop.w": 0.15})
    for latency_s in (0.12, 0.16, 0.3, 99.0):
        tallies.ended("shop.w", ending(latency_s=latency_s), 1)
    tallies.serve({"shop.w": 0.4})
    tally = tallies.of("shop.w")
    assert tally.bounds_s == sorted({*BOUNDS_S, 0.4})
    counts = dict(zip((*tally.bounds_s, None), tally.buckets, strict=True))
    assert (counts[0.25], counts[0.4], counts[0.5], counts[None]) == (2, 0, 1, 1)
    tallies.ended("shop.w", ending(latency_s=0.35), 1)
    assert tally.buckets[tally.bounds_s.index(0.4)] == 1
    for slo_s in (0.5, 90.0, None):  # one of the usual bounds, one above all of them, none
        tallies.serve({"shop.w": slo_s})
        assert tally.bounds_s == sorted({*BOUNDS_S, *([slo_s] if slo_s else [])})
        assert (sum(tally.buckets), len(tally.buckets)) == (5, len(tally.bounds_s) + 1)


def reasons_of_shipped_policies():
    """Every reason that a policy gives in its source: literals, f-strings without their values, constants."""
    for path in sorted(Path(fairlead.policy.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            is_constant = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").startswith("TOO_")
            if is_constant:
                yield path, node.value.value
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reject" and len(node.args) > 1:
                given = node.args[1]
                if isinstance(given, ast.Name):
                    given = next(
                        (
                            other.value
                            for other in ast.walk(tree)
                            if isinstance(other, ast.Assign) and getattr(other.targets[0], "id", "") == given.id
                        ),
                        given,
                    )
                if isinstance(given, ast.Constant):
                    yield path, given.value
                if isinstance(given, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else "7" for part in given.values]
                    yield path, "".join(parts)


REASONS = list(reasons_of_shipped_policies())


def test_every_reason_of_a_shipped_policy_has_a_code_of_its_own():
    assert len(REASONS) >= 10
    assert [(path.name, reason) for path, reason in REASONS if code_of_sentence(reason) == "other"] == []
    assert {code_of_sentence(reason) for _, reason in REASONS} >= {"queue_full", "overloaded", "unplaceable"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (ending("dropped", latency_s=2.0, reason="its deadline cannot be met any more"), "deadline_passed"),
        (ending("dropped", latency_s=0.5, reason="its deadline cannot be met any more"), "deadline_unreachable"),
        (ending("dropped", latency_s=2.0, reason="function f is held at 0 instances by an operator"), "held_at_zero"),
        (ending("rejected", reason="the stars are not right: 17"), "other"),
        (ending("rejected"), "other"),
    ],
)
def test_a_reason_becomes_one_of_the_codes(given, code):
    assert code_of(given) == code
    assert code in CODES


def test_labels_are_bounded_however_many_reasons_a_policy_invents():
    tallies = Tallies()
    for number in range(1000):
        tallies.ended("shop.w", ending("rejected", reason=f"because {number}"), 1)
    assert tallies.of("shop.w").refusals == {code: 1000 if code == "other" else 0 for code in CODES}
