"""/metrics, /v1/status and /docs: the numbers are those of the requests that were sent."""

import pytest
from gateway_world import Refuse, SmallHost, running, wait_until
from prometheus_client.parser import text_string_to_metric_families

from fairlead.engine.live.gateway.app import ENDPOINTS
from fairlead.engine.live.gateway.tallies import REASONS_KEPT, Tallies
from fairlead.engine.live.values import Ending


def refuse(value, _):
    raise Refuse("rejected", f"finish at {value} is late", 0.5)


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
    assert found["fairlead_rejected_total", "finish at is late", "shop.full"] == 5  # one label, whatever the number
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


def test_reasons_are_bounded_however_many_a_policy_invents():
    tallies = Tallies()
    for number in range(1000):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        ending = Ending(
            request=number,
            workflow="w",
            outcome="rejected",
            arrival=0.0,
            end=0.0,
            deadline=1.0,
            reason=f"because {word}",
        )
        tallies.ended("shop.w", ending)
    refusals = tallies.of("shop.w").refusals
    assert len(refusals) == REASONS_KEPT + 1
    assert sum(refusals.values()) == 1000
    assert refusals["other"] == 1000 - REASONS_KEPT
