"""Runtime expressions: what they mean, by jq's own rules, and what is refused."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.app.expression import (
    Both,
    Cases,
    Comparison,
    Either,
    Literal,
    Not,
    Path,
    cases,
    evaluate,
    parse_expression,
)

ORDER = {"kind": "pet", "lines": [{"price": 12.5}, {"price": 3}], "odd name": 1, "paid": False, "note": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (".", ORDER),
        (".kind", "pet"),
        ("${ .kind }", "pet"),
        (".lines[0].price", 12.5),
        (".lines[-1].price", 3),
        (".lines[7]", None),
        ('.["odd name"]', 1),
        ('."odd name"', 1),
        (".missing.deeper", None),
        (".lines[0].price > 10", True),
        ('.kind == "pet" and .paid', False),
        ('.kind == "car" or .paid == false', True),
        (".paid | not", True),
        ("(.paid | not) and .lines[1].price <= 3", True),
        (".note == null", True),
        ("-1 < 0", True),
        ("1e2 == 100", True),
        ('"\\u00e9" == "é"', True),
    ],
)
def test_what_expressions_give(text, value):
    assert evaluate(parse_expression(text), ORDER) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0 and true", True),  # only null and false are false
        ('"" and true', True),
        ("null or false", False),
        ("true == 1", False),  # types differ, whatever Python says
        ("false == 0", False),
        ("1 == 1.0", True),
        ("null < false", True),  # the order of types
        ("false < true", True),
        ("true < -5", True),
        ('99 < "1"', True),
        ('. > "z"', True),  # an object is above every text
        ("true or false and false", True),  # and binds more
        ("1 < 2 | not", False),  # pipe binds least
    ],
)
def test_values_compare_as_in_jq(text, value):
    assert evaluate(parse_expression(text), {}) is value


def test_lists_and_objects_compare_by_what_is_in_them():
    assert evaluate(parse_expression(".a == .b"), {"a": {"x": [1, True]}, "b": {"x": [1.0, True]}}) is True
    assert evaluate(parse_expression(".a == .b"), {"a": [1], "b": [True]}) is False
    assert evaluate(parse_expression(".a < .b"), {"a": [1, 9], "b": [2]}) is True


@pytest.mark.parametrize(("text", "value"), [(".a.b", {"a": 3}), (".[0]", {"a": 1}), (".a", [1]), (".a", "text")])
def test_an_index_that_does_not_fit_is_an_error_of_the_run(text, value):
    with pytest.raises(TypeError, match="there is no"):
        evaluate(parse_expression(text), value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'the end' is not expected there"),
        (".a ==", "'the end' is not expected there"),
        (".a = 1", "'= 1' is outside the part of jq that is supported"),
        (".a + 1", "'+ 1' is outside"),
        ("not .a", "'not' is not expected there"),
        (".a | length > 2", "after '|' only 'not' is supported, not 'length'"),
        ("(.a", "a parenthesis is not closed"),
        (".a[", "in brackets goes a whole number or a text in quotes"),
        (".a[1", "a bracket is not closed"),
        (".a[]", "in brackets goes"),
        ("1 < 2 < 3", "comparisons cannot be chained"),
        (".a .b", None),  # jq takes this for .a.b
        ("$item.a", "'$item.a' is outside"),
        (".a) == 1", "')' is not expected there"),
        ('"\\q"', "is no text as in JSON"),
        ("(" * 60 + "1" + ")" * 60, "it is nested deeper than 50"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(text, why):
    if why is None:
        assert parse_expression(text) == Path(("a", "b"))
        return
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        parse_expression(text)
    assert "cannot be read" in str(caught.value)
    assert "Supported are paths such as .a.b" in str(caught.value)


literals = st.builds(
    Literal,
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6) | st.text(max_size=5),
)
paths = st.builds(lambda keys: Path(tuple(keys)), st.lists(st.integers(-3, 3) | st.text(max_size=4), max_size=3))
expressions = st.recursive(
    literals | paths,
    lambda inner: (
        st.builds(Comparison, inner, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner)
        | st.builds(Both, inner, inner)
        | st.builds(Either, inner, inner)
        | st.builds(Not, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_an_expression_reads_as_it_was_written(expression):
    assert parse_expression(f"${{ {expression} }}") == expression


def test_cases_take_the_first_that_holds():
    chooser = cases({"large": ".size > 10", "odd": ".odd"}, default="rest")
    assert chooser.labels == ("large", "odd", "rest")
    assert [chooser(x) for x in ({"size": 11, "odd": True}, {"size": 1, "odd": True}, {"size": 1})] == [
        "large",
        "odd",
        "rest",
    ]
    assert cases({True: ".x"}, default=False) == Cases((("true", Path(("x",))),), "false")
    with pytest.raises(ValueError, match="cases needs at least one condition"):
        cases({}, default="x")
