"""Figures of groups: a bar or a box per series and group, readable as SVG files of their own."""

import re
from xml.etree import ElementTree

import pytest

from fairlead.report.figure import bar_figure, box_figure

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg):
    """(title, height) of every bar that says what it is."""
    root = ElementTree.fromstring(svg)
    return {r.find(f"{SVG}title").text: float(r.get("height")) for r in root.iter(f"{SVG}rect") if len(r)}


def test_bars_are_as_high_as_their_values():
    found = bars(bar_figure("Rates", {"light": {"a": 50.0, "b": 100.0}, "heavy": {"a": 25.0, "b": float("nan")}}))
    assert set(found) == {"light, a: 50", "light, b: 100", "heavy, a: 25"}
    assert found["light, b: 100"] / found["light, a: 50"] == pytest.approx(2, rel=0.01)


def test_a_series_keeps_its_colour_in_every_group():
    svg = bar_figure("Rates", {"one": {"a": 1.0, "b": 2.0}, "two": {"b": 3.0}})
    styles = dict(re.findall(r'class="dot (s\d)"><title>(?:one|two), (\w)', svg))
    assert styles == {"s0": "a", "s1": "b"}


def test_boxes_span_the_quartiles_and_are_cut_off():
    svg = box_figure("Latency", {"app": {"a": (0.2, 0.4, 0.5, 0.6, 9.0)}}, limit=1.0, most=2.0)
    ((title, height),) = bars(svg).items()
    assert title == "app, a: 0.2, 0.4, 0.5, 0.6, 9"
    # 260 pixels stand for 2: the box from 0.4 to 0.6 is a tenth of them.
    assert height == pytest.approx(26, abs=0.2)
    assert 'class="limit"' in svg


def test_names_are_escaped():
    svg = bar_figure("a < b", {"x & y": {"<z>": 1.0}})
    ElementTree.fromstring(svg)
    assert "<z>" not in svg
