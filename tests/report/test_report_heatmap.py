"""The heat map: colour and number say the same, the best are marked, and what has no figure says so."""

from xml.etree import ElementTree

import pytest

from fairlead.report.heatmap import Box, draw_heat_map, per_cent, stand_alone


def texts(svg, style):
    found = [one for one in ElementTree.fromstring(svg).iter() if one.tag.endswith("text")]
    return [one.text for one in found if style in one.get("class", "").split()]


def drawn(*boxes):
    rows = {"a <b>": [[*boxes]]}
    drawing = draw_heat_map(rows, ["esg"], [str(i) for i in range(len(boxes))], title="Map", legend="in time")
    return stand_alone(drawing)


def test_a_box_shows_its_share_as_number_and_level():
    svg = drawn(Box(share=0.42, title="esg on a"), Box(share=1.0, title="", is_best=True))
    assert texts(svg, "share") == ["42", "100"]
    assert texts(svg, "best") == ["100"]
    assert 'class="warmth w4"' in svg
    assert svg.count('class="mark"') == 1
    assert texts(svg, "row") == ["a <b>"]


def test_a_box_without_a_figure_shows_its_sign():
    svg = drawn(Box(share=None, title="too slow", sign="slow"), None)
    assert texts(svg, "sign") == ["slow"]
    assert texts(svg, "share") == []


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (0.001, "<1"), (0.0051, "1"), (0.5, "50"), (0.994, "99"), (0.998, "99"), (1.0, "100")],
)
def test_neither_all_nor_nothing_unless_it_is(share, text):
    assert per_cent(share) == text
