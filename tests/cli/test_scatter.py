"""Points as characters: where they fall, what is marked, and how wide it is."""

import pytest

from fairlead.cli.scatter import ASCII, scatter


def picture(points, *, width=26, height=5, **given):
    given = {"mark": points[0], "limit": None, "limit_label": "", **given}
    return scatter(points, width=width, height=height, ink=ASCII, **given)


def test_points_lie_on_logarithmic_axes():
    # A decade of x over 21 cells, one of y over 5: half of either lies at the square root of ten.
    assert picture([(1, 100), (10**0.5, 10**1.5), (10, 10)], mark=(10, 10), width=27) == [
        " 100|.",
        "    |",
        "    |          .",
        "    |",
        "  10|                    @",
        "    +---------------------",
        "     1                  10",
    ]


def test_a_limit_is_an_upright_line_with_its_label():
    lines = picture([(1, 10), (10, 1)], limit=10**0.5, limit_label="SLO")
    assert lines == [
        " 10|@         :",
        "   |          :",
        "   |          :",
        "   |          :",
        "  1|          :         .",
        "   +---------------------",
        "    1        SLO       10",
    ]


def test_a_label_for_which_there_is_no_room_is_left_out():
    lines = picture([(1, 10), (10, 1)], limit=1.1, limit_label="SLO 1.1 s")
    assert lines[-1].split() == ["SLO", "1.1", "s", "10"]


@pytest.mark.parametrize("width", [30, 80])
def test_no_line_is_wider_than_asked(width):
    lines = picture([(1, 1000), (7, 40), (900, 1)], width=width, limit=5000, limit_label="far")
    assert max(map(len, lines)) <= width
    assert lines[-1].endswith("far")


def test_one_point_and_nothing_are_drawn_too():
    assert sum(line.count("@") for line in picture([(2, 3)])) == 1
    assert sum(line.count(".") for line in picture([(0, 3), (2, 0), (1, 1)], mark=(0, 3))) == 2
