"""How graphs fall apart into series, parallel parts and kernels."""

import pytest

from fairlead.planning.decomposition import Kind, decompose

CHAIN = [[], [0], [1]]
DIAMOND = [[], [0], [0], [1, 2]]
CROSSED = [[], [], [0, 1], [0, 1]]  # every stage of one pair before every stage of the other
N = [[], [], [0], [0, 1]]


def shape(graph):
    """The tree as nested tuples: a stage's index, or a letter and the parts by their first stage."""
    parts = decompose(graph)

    def draw(position):
        part = parts[position]
        if part.kind is Kind.STAGE:
            return part.first
        inner = sorted(part.parts, key=lambda each: parts[each].first)
        return (part.kind.name[0], *(draw(each) for each in inner))

    return draw(0)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ([[]], 0),
        (CHAIN, ("S", 0, 1, 2)),
        ([[], []], ("P", 0, 1)),
        (DIAMOND, ("S", 0, ("P", 1, 2), 3)),
        (CROSSED, ("S", ("P", 0, 1), ("P", 2, 3))),
        (N, ("K", 0, 1, 2, 3)),
        ([[], [0], [0, 1]], ("S", 0, 1, 2)),
        ([[], [], [1], [0], [0, 2]], ("K", 0, ("S", 1, 2), 3, 4)),
        ([[], [], [], [0, 1], [0, 1, 2]], ("K", ("P", 0, 1), 2, 3, 4)),
    ],
    ids=[
        "one-stage",
        "chain",
        "side-by-side",
        "diamond",
        "crossed-join",
        "n",
        "implied-precedence",
        "n-with-a-chain-in-it",
        "n-with-a-pair-in-it",
    ],
)
def test_tree_of_parts(graph, expected):
    assert shape(graph) == expected


def test_kernel_knows_the_order_of_its_parts():
    kernel = decompose([[], [], [1], [0], [0, 2]])[0]
    # parts: 0, the chain 1-2, 3, 4; 3 is after 0 and 4 after 0 and the chain
    assert kernel.after == (0b1100, 0b1000, 0, 0)


def test_tree_as_deep_as_there_are_stages():
    graph = [[], [0]]
    for stage in range(2, 1100, 2):  # a stage beside all before it, then one after all
        graph += [[], [stage - 1, stage]]
    assert {part.kind for part in decompose(graph)} == {Kind.STAGE, Kind.SERIES, Kind.PARALLEL}


@pytest.mark.parametrize("graph", [[[0]], [[1], []], [[], [-1]]], ids=["itself", "later", "negative"])
def test_predecessors_come_earlier(graph):
    with pytest.raises(ValueError, match="topological order"):
        decompose(graph)
