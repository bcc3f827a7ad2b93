"""The page: complete, self-contained, safe, and always the same."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from report_frames import CLUSTER, instance, invocation, recording, request, small

from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA, Recording
from fairlead.report import render_html, write_html

VOID = {"meta", "br", "link", "img", "input", "hr"}
EVIL = '<script>alert("x")</script>'


class Outline(HTMLParser):
    """Checks that tags are balanced; collects them and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def runs():
    return [small(policy=name, seed=seed) for name in ("fifo", "esg") for seed in (0, 1)]


def many(count, nodes=8):
    """A run with that many requests of one invocation each."""
    rng = np.random.default_rng(1)
    arrival = np.sort(rng.uniform(0, 1000, count))
    wait, run = rng.exponential(0.05, count), rng.exponential(0.3, count)
    ids = np.arange(count)
    place = ids % nodes
    end = arrival + wait + run
    requests = {"request": ids, "arrival": arrival, "deadline": arrival + 0.8, "end": end, "cost_usd": run / 3600}
    invocations = {
        "request": ids,
        "batch": ids,
        "instance": place,
        "ready": arrival,
        "start": arrival + wait,
        "end": end,
    }
    fixed = {"item": 0, "attempt": 1, "batch_size": 1, "device": -1, "vcpus": 1.0, "vgpus": 0.0, "cold_s": 0.0}
    fixed |= {"transfer_s": 0.0, "is_cold": False, "outcome": "done", "function": "f", "stage": "f", "workflow": "main"}

    def table(columns, constants, schema):
        frame = pl.DataFrame(columns).with_columns(**{key: pl.lit(value) for key, value in constants.items()})
        missing = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
        return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in schema.items())

    completed = {"workflow": "main", "budget_usd": float("inf"), "outcome": "completed"}
    invocations["node"] = np.where(place % 2 == 0, "n0", "n1")
    return Recording(
        scenario="many",
        policy="fifo",
        scaler=None,
        seed=0,
        parameters={},
        cluster=CLUSTER,
        warmup_s=0.0,
        duration_s=1000.0,
        end_s=1010.0,
        requests=table(requests, completed, REQUEST_SCHEMA),
        invocations=table(invocations, fixed | {"cost_usd": 0.0}, INVOCATION_SCHEMA),
        instances=pl.DataFrame(schema=dict(INSTANCE_SCHEMA)),
    )


@pytest.mark.parametrize(
    "recordings",
    [
        [recording()],
        [small()],
        runs(),
        [small(policy=name, point={"rate_rps": rate}) for name in ("fifo", "esg") for rate in (10.0, 20.0)],
        [small(policy=name, point={"sharing": kind}) for name in ("fifo", "esg") for kind in ("mps", "mig")],
        [recording([request(0, 0.0, 0.0, outcome="rejected")])],
    ],
    ids=["empty", "one", "seeds", "sweep", "sweep-of-names", "all-rejected"],
)
def test_the_page_is_well_formed(recordings):
    page = render_html(recordings)
    assert "svg" in outline(page).tags
    assert "nan" not in page.lower().replace("nano", "")
    assert ">None<" not in page


def test_the_page_needs_no_network():
    page = render_html(runs())
    assert "http://" not in page
    assert "https://" not in page
    found = outline(page)
    assert not {"link", "img", "iframe", "object"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name in ("src", "href")]


def test_the_page_names_what_it_shows():
    text = " ".join(outline(render_html(runs(), "A comparison")).texts)
    for words in ("A comparison", "scenario small", "fifo", "esg", "2 seeds", "40.0 %", "$10.5", "--seeds 2", "detect"):
        assert words in text


def test_policies_that_look_the_same_are_said_to_be():
    page = render_html([small(policy=name) for name in ("fifo", "esg")])
    assert "All 2 policies answer 40.0 % of the requests in time, for $10.5." in page
    assert 'class="best"' not in page


def test_the_best_stands_out():
    quick, slow = (recording([request(0, 0.0, end)], policy=name) for name, end in (("esg", 1.0), ("fifo", 9.0)))
    page = render_html([slow, quick])
    assert "<b>esg</b> answers 100.0 % of the requests in time" in page
    assert "the last, <b>fifo</b>, 0.0 %" in page
    assert '<td class="best">1.00 s</td>' in page


def test_of_those_that_look_equally_cheap_the_better_is_named():
    cheap = {"fifo": 9.0, "edf": 1.0}
    runs = [recording([request(0, 0.0, 9.0), request(1, 0.0, end)], policy=name) for name, end in cheap.items()]
    best = recording(
        [request(0, 0.0, 1.0), request(1, 0.0, 1.0)], [invocation(0, 0.0, 0.0, 1.0, batch=0, cost=1.0)], policy="esg"
    )
    page = render_html([*runs, best])
    assert "<b>esg</b> answers 100.0 %" in page
    assert "the cheapest, <b>edf</b>, 50.0 % for $0;" in page


def test_what_answers_nothing_is_never_praised_for_its_price():
    good, other = (
        recording([request(0, 0.0, 1.0)], [invocation(0, 0.0, 0.0, 1.0, batch=0, cost=cost)], policy=name)
        for name, cost in (("esg", 2.0), ("fifo", 3.0))
    )
    idle = recording([request(0, 0.0, 0.0, outcome="rejected")], policy="clockwork")
    page = render_html([idle, other, good])
    assert "<b>esg</b> answers 100.0 % of the requests in time, for $2.00; the last, <b>clockwork</b>, 0.0 %" in page
    assert "the cheapest" not in page
    assert '<td class="best">$2.00</td>' in page
    assert '<td class="best">$0</td>' not in page


def test_a_page_on_which_nothing_is_in_time_says_so():
    late = [recording([request(0, 0.0, 9.0)], policy=name) for name in ("fifo", "esg")]
    assert "Each of the 2 policies missed the deadline of every request." in render_html(late)
    assert "<b>fifo</b> missed the deadline of every request." in render_html(late[:1])


def test_runs_of_one_policy_are_lines_of_their_own():
    runs = [recording([request(0, 0.0, end)], point={"run": name}) for name, end in (("8", 1.0), ("9", 2.0))]
    page = render_html(runs)
    text = " ".join(outline(page).texts)
    assert "fifo (run 8)" in text
    assert "fifo (run 9)" in text
    assert "2 runs" in text
    assert "Over the sweep" not in text
    assert "All 2 runs answer 100.0 % of the requests in time, for $0;" in page


def test_stages_show_how_long_they_waited_and_ran():
    rows = [
        invocation(0, 0.0, 1.0, 4.0, batch=0, cold_s=1.0, function="decode"),
        invocation(1, 0.0, 3.0, 4.0, batch=1, function="decode"),
        invocation(0, 4.0, 4.0, 5.0, batch=2, function="detect"),
    ]
    text = " ".join(outline(render_html([recording([request(0, 0.0, 5.0), request(1, 0.0, 5.0)], rows)])).texts)
    # decode: waits of 1 and 3 s, cold starts of 1 and 0 s, runs of 2 and 1 s
    assert "decode fifo 2 2.00 s 2.90 s 500 ms 0 s 1.50 s 1.95 s" in " ".join(text.split())
    assert "detect fifo 1 0 s 0 s 0 s 0 s 1.00 s 1.00 s" in " ".join(text.split())


def test_batches_that_wait_for_a_start_that_is_not_theirs_are_counted():
    rows = [invocation(0, 0.0, 0.0, 2.0, batch=0, cold_s=1.0, cost=2.0)]
    page = " ".join(outline(render_html([recording([request(0, 0.0, 2.0)], rows)])).texts)
    assert "cold waits" in page
    assert "cold starts and waits for them" in page


@pytest.mark.parametrize(("slo_s", "shown"), [(0.1499, "SLO 150 ms"), (0.125, "SLO 125 ms"), (1.234, "SLO 1.234 s")])
def test_an_objective_is_shown_without_the_error_of_its_measurement(slo_s, shown):
    assert shown in " ".join(outline(render_html([recording([request(0, 0.0, 0.1, slo_s=slo_s)])])).texts)


def test_small_costs_have_no_exponent():
    rows = [invocation(0, 0.0, 0.0, 1.0, batch=0, cost=5.5e-5)]
    runs = [recording([request(0, 0.0, 1.0), request(1, 4.0, 5.0)], rows, policy=name) for name in ("fifo", "esg")]
    page = render_html([*runs, *(replace(run, point={"rate": 2}) for run in runs)])
    assert "cost (millionths of a USD)" in page
    assert not re.search(r"\de-\d", page)


def test_the_quickest_is_named_where_nothing_else_differs():
    page = render_html([recording([request(0, 0.0, end)], policy=name) for name, end in (("a", 2.0), ("b", 1.0))])
    assert "for $0; <b>b</b> is the quickest, with a mean latency of 1.00 s." in page


def test_parameters_tell_runs_of_one_policy_apart():
    page = render_html([small(parameters={"mode": mode}, seed=seed) for mode in ("a", "b") for seed in (0, 1)])
    text = " ".join(outline(page).texts)
    assert "fifo (mode=a)" in text
    assert "fifo (mode=b)" in text
    assert "over 2 seeds" in text
    assert "Run it again" not in text  # one command gives a policy one set of parameters


def test_names_cannot_break_out_of_the_page():
    run = recording(
        [request(0, 0.0, 1.0, workflow=EVIL), request(1, 0.0, 1.0, workflow="other")],
        [invocation(0, 0.0, 0.0, 1.0, batch=0, workflow=EVIL, function=EVIL)],
        [instance(0, 0.0, 0.0, None, 1.0, function=EVIL)],
        policy=EVIL,
        scenario=EVIL,
        scaler='" onload="x',
        parameters={EVIL: EVIL},
        point={EVIL: 1},
    )
    page = render_html([run], EVIL)
    assert EVIL not in page
    found = outline(page)
    assert found.tags.count("script") == 1
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_equal_runs_give_equal_pages(tmp_path):
    write_html(runs(), tmp_path / "a.html")
    write_html(runs(), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_bars_of_the_gantt_say_what_they_are():
    page = render_html([small()])
    assert "detect, request 1 of main, batch of 2\n2 s to 4 s, waited 1.00 s\ncold start 1.00 s\nrun 1.00 s" in page


def test_a_large_run_makes_a_small_page():
    page = render_html([many(100_000)])
    outline(page)
    assert len(page) < 400_000
    assert "the busiest" in page


def test_a_page_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one recording"):
        render_html([])
