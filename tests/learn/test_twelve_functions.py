"""The twelve functions: each does what it says, and what was measured of them is used as it was measured."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.app import load_app
from fairlead.learn.functions.computing import (
    compression_work,
    dna_work,
    page_ranks,
    pagerank_work,
    primes_below,
    primes_work,
    squiggle,
)
from fairlead.learn.functions.endpoint import endpoint_work
from fairlead.learn.functions.kinds import APP, kind_of, kinds, measured
from fairlead.learn.functions.pictures import picture, resize_work, resized, thumbnail, thumbnail_work
from fairlead.learn.functions.texts import (
    base64_work,
    dynamic_html_work,
    feeling_of,
    html_of,
    json_work,
    markdown_work,
    page_of,
    sentiment_work,
)
from fairlead.model import Configuration
from fairlead.profile.measured import ColdStart, MeasuredFunction, Point

NAMES = [
    "base64",
    "primes",
    "markdown2html",
    "sentiment",
    "image-resize",
    "json",
    "http-endpoint",
    "dynamic-html",
    "thumbnailer",
    "compression",
    "graph-pagerank",
    "dna-visualisation",
]


# --- text


def test_base64_comes_back_as_it_was_and_is_a_third_longer():
    assert base64_work(3) == {"bytes": 3072, "characters": 4096, "is_same": True}


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("# Title", "<h1>Title</h1>"),
        ("### Third ###x", "<h3>Third ###x</h3>"),
        ("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("*a* **b** `c`", "<p><em>a</em> <strong>b</strong> <code>c</code></p>"),
        ("[here](x.html)", '<p><a href="x.html">here</a></p>'),
        ("```\n# a < b\n\n*c*\n```\nd", "<pre><code># a &lt; b\n\n*c*</code></pre>\n<p>d</p>"),
        ("```\nopen", "<pre><code>open</code></pre>"),
        ("<b> & co", "<p>&lt;b&gt; &amp; co</p>"),
        ("# a\n# b\ntext", "<h1>a</h1>\n<h1>b</h1>\n<p>text</p>"),
        ("", ""),
    ],
)
def test_markdown_becomes_html(markdown, html):
    assert html_of(markdown) == html


def test_a_page_of_three_sections_has_four_headings_and_six_items():
    answer = markdown_work(3)
    assert (answer["headings"], answer["items"]) == (4, 6)


@pytest.mark.parametrize(
    ("sentence", "feeling"),
    [
        ("A good day", 1 / 3),
        ("Not good", -1 / 3),
        ("A superb view", 2 / 4),
        ("very bad", -1.5 / 3.5),
        ("good and bad", 0.0),
        ("The door", 0.0),
        ("never very good, but great", 0.5 / 2.5),
    ],
)
def test_a_sentence_feels_as_its_words_say(sentence, feeling):
    assert feeling_of(sentence) == pytest.approx(feeling)


def test_all_sentences_are_judged():
    assert sentiment_work(3) == {"sentences": 300, "good": 100, "bad": 200}  # two and four of every six


def test_json_comes_back_as_it_was():
    answer = json_work(1)
    assert answer["is_same"]
    assert answer["ids"] == 99 * 100 // 2


def test_a_template_is_filled_and_cannot_be_broken_out_of():
    page = page_of("A & B", {"<script>": 1.5, "it's": 2})
    assert "<title>A &amp; B</title>" in page
    assert "<td>1</td><td>&lt;script&gt;</td><td>1.50</td>" in page
    assert "it&#x27;s" in page
    assert dynamic_html_work(2)["rows"] == 200


# --- pictures


def test_a_resized_picture_keeps_its_corners_and_mixes_between_them():
    image = np.zeros((2, 2, 3), np.float32)
    image[0, 1], image[1, 0], image[1, 1] = 20, 40, 60
    large = resized(image, 3, 3)
    assert large[:, :, 0].tolist() == [[0, 10, 20], [20, 30, 40], [40, 50, 60]]


@given(pixels=st.integers(2, 40), height=st.integers(1, 60), width=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_resizing_a_straight_slope_leaves_it_straight(pixels, height, width):
    small = resized(picture(pixels), height, width)
    assert small.shape == (height, width, 3)
    assert small[0, :, 0] == pytest.approx(np.linspace(0, 255, width), abs=1e-3)  # red grows to the right
    assert small.min() >= 0
    assert small.max() <= 255.001


def test_a_thumbnail_has_the_means_of_its_boxes():
    image = np.arange(4 * 4 * 3, dtype=np.float32).reshape(4, 4, 3)
    small = thumbnail(image, 2)
    assert small[:, :, 0].tolist() == [[7.5, 13.5], [31.5, 37.5]]  # of 0, 3, 12 and 15, ...


def test_a_thumbnail_is_as_small_as_asked_and_as_bright_as_the_picture():
    answer = thumbnail_work(300)
    assert (answer["height"], answer["width"]) == (100, 100)  # boxes of three pixels
    assert answer["mean"] == pytest.approx(float(picture(300).mean()), rel=1e-4)
    assert resize_work(100)["width"] == 75


# --- numbers


def test_there_are_25_primes_below_100():
    assert primes_below(20) == [2, 3, 5, 7, 11, 13, 17, 19]
    assert primes_below(100)[-1] == 97
    assert len(primes_below(100)) == 25
    assert primes_below(2) == []
    assert primes_below(3) == [2]
    assert primes_work(10) == {"count": 1229, "last": 9973}


def test_what_is_compressed_is_smaller_and_comes_back():
    answer = compression_work(50)
    assert answer["is_same"]
    assert answer["packed"] < answer["bytes"] / 3


def test_ranks_of_a_ring_are_equal():
    ranks = page_ranks(np.arange(5), (np.arange(5) + 1) % 5, 5)
    assert ranks == pytest.approx(np.full(5, 0.2))


def test_ranks_of_two_pages_that_point_at_a_third_without_links():
    # r0 = r1 = (0.15 + 0.85 r2) / 3 and r2 = r0 + 0.85 * 2 r0, which sum to 1
    ranks = page_ranks(np.array([0, 1]), np.array([2, 2]), 3, rounds=200)
    assert ranks == pytest.approx([1 / 4.7, 1 / 4.7, 2.7 / 4.7])


def test_ranks_sum_to_one_and_favour_what_is_linked_most():
    answer = pagerank_work(1)
    assert answer["sum"] == pytest.approx(1.0)
    assert answer["best"] < 10


def test_each_base_is_two_strokes():
    assert squiggle("AT") == [(0, 0), (0.5, 0.5), (1, 0), (1.5, -0.5), (2, 0)]
    assert squiggle("GC") == [(0, 0), (0.5, 0.5), (1, 1), (1.5, 0.5), (2, 0)]


@given(st.text("ACGT", max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_squiggle_ends_at_the_number_of_g_less_that_of_c(bases):
    line = squiggle(bases)
    assert len(line) == 1 + 2 * len(bases)
    assert line[-1] == (len(bases), bases.count("G") - bases.count("C"))


def test_the_squiggle_of_a_thousand_bases_has_two_points_for_each():
    assert dna_work(1)["points"] == 2001


def test_the_endpoint_answers_every_call_with_the_double():
    assert endpoint_work(2) == {"answered": 20, "sum": 2 * sum(range(20))}


# --- the app


@pytest.fixture(scope="module")
def app():
    return load_app(APP)


def test_the_app_has_twelve_functions_each_with_a_workflow_and_an_slo(app):
    assert list(app.functions) == list(app.workflows) == NAMES
    assert all(workflow.spec.slo_s > 0 for workflow in app.workflows.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_workflow_answers_with_plain_values(app, name):
    answer = app.workflows[name]({"size": 2})
    assert json.loads(json.dumps(answer)) == answer
    assert answer.get("is_same", True)


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", True, 10**6])
def test_a_size_that_is_none_is_refused(app, size):
    with pytest.raises(ValueError, match="size must be a whole number from 1 to 100000; got"):
        app.functions["primes"]({"size": size})


def test_anything_without_a_size_gets_the_usual_one(app):
    assert app.functions["dynamic-html"]("now")["rows"] == app.functions["dynamic-html"]({})["rows"] == 10_000


# --- what was measured


def test_what_was_measured_is_of_the_functions_that_there_are(app):
    found = measured()
    assert list(found.functions) == list(kinds()) == list(app.functions)
    assert found.machine.cpu
    assert found.machine.limits.startswith("cgroup")  # only so is a share of a CPU a share


@pytest.mark.parametrize("name", NAMES)
def test_the_law_is_close_to_what_was_measured(name):
    law = kinds()[name].law
    points = [point for point in measured().functions[name].points if not point.is_predicted]
    assert {0.25, 1.0, 2.0} <= {point.vcpus for point in points}
    for point in points:
        works_s = law.t1_s * (1 - law.fixed)
        assert point.cpu_s == pytest.approx(works_s, rel=0.3)
        if point.vcpus < 0.5:  # so little is there even on a busy machine: what was measured is the law itself
            assert point.mean_s == pytest.approx(law.mean_s(Configuration(vcpus=point.vcpus), "n"), rel=0.3)


@pytest.mark.parametrize("name", NAMES)
def test_the_profile_is_that_of_a_small_function_on_one_thread(name):
    kind = kinds()[name]
    assert 0.03 < kind.law.t1_s < 0.6
    assert kind.law.fixed < 0.3
    assert kind.law.threads == 1
    assert 0.1 < kind.cold_start_s < 5
    assert kind.memory_gb in (0.125, 0.25)
    assert 0 < kind.noise < 0.5


def test_the_law_of_exact_points_is_exact():
    # a tenth of 0.2 s waits, the rest needs the CPU: 0.02 + 0.18 / v; at one vCPU somebody else was there
    points = [(0.25, 0.74), (0.5, 0.38), (1.0, 0.3), (2.0, 0.2)]
    function = MeasuredFunction(
        points=tuple(Point(vcpus=vcpus, mean_s=mean_s, cpu_s=0.18, count=9) for vcpus, mean_s in points),
        cold_start=ColdStart(mean_s=0.4567, p95_s=0.5),
        memory_gb=0.126,
        noise=0.3,
        cpu_noise=0.07,
    )
    kind = kind_of(function)
    assert (kind.law.t1_s, kind.law.fixed) == (0.2, 0.1)
    assert (kind.cold_start_s, kind.memory_gb, kind.noise) == (0.457, 0.25, 0.07)


def test_predicted_points_do_not_count():
    points = (Point(vcpus=0.5, mean_s=0.4, cpu_s=0.2, count=9), Point(vcpus=1.0, mean_s=9.9, is_predicted=True))
    assert kind_of(MeasuredFunction(points=points)).law.t1_s == pytest.approx(0.2)


def test_cpu_time_counts_by_the_number_of_runs_and_is_never_more_than_the_time():
    points = (Point(vcpus=1.0, mean_s=0.2, cpu_s=0.2, count=3), Point(vcpus=2.0, mean_s=0.24, cpu_s=0.24, count=1))
    law = kind_of(MeasuredFunction(points=points)).law
    assert (law.t1_s, law.fixed) == (0.21, 0.0)


def test_a_file_without_cpu_times_says_nothing_of_the_law():
    with pytest.raises(ValueError, match="no point has a CPU time"):
        kind_of(MeasuredFunction(points=(Point(mean_s=0.2, count=3),)))
