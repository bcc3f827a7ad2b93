"""Kernel graphs: what is wrong is refused before anything runs, with the path of the field."""

import json
from time import process_time

import pytest
from bad_graphs import CHANGES, GOOD, spoiled

from fairlead.kaas import GraphError, Limits, graph_json, parse_graph
from fairlead.kaas.graphs import SHIPPED


def faults(document: object) -> list[str]:
    with pytest.raises(GraphError) as caught:
        parse_graph(json.dumps(document))
    return [fault.path for fault in caught.value.faults]


def test_good_graph_is_read_and_written_back_the_same():
    graph = parse_graph(json.dumps(GOOD))
    assert [buffer.size for buffer in graph.buffers] == [256, 256, 256, 256]
    assert parse_graph(graph_json(graph)) == graph


@pytest.mark.parametrize(("path", "value", "where"), CHANGES, ids=range(len(CHANGES)))
def test_wrong_field_is_named(path, value, where):
    assert where in faults(spoiled(path, value))


def test_there_are_fifty_bad_graphs():
    assert len(CHANGES) >= 50


def test_all_faults_are_listed_at_once():
    document = spoiled("iterations", 0)
    document["buffers"][0]["shape"] = [0]
    document["kernels"][1]["grid"] = [0]
    assert faults(document) == ["iterations", "buffers[0].shape", "kernels[1].grid"]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", "\ud800", '{"version": 1' * 10_000, b"\xff\xfe", "[" * 100_000]
)
def test_what_is_no_graph_is_refused(text):
    with pytest.raises(GraphError):
        parse_graph(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))


def test_a_million_kernels_are_refused_without_looking_at_each():
    document = json.loads(json.dumps(GOOD))
    kernel = json.dumps(document["kernels"][1])
    text = json.dumps({**document, "kernels": []}).replace(
        '"kernels": []', f'"kernels": [{",".join([kernel] * 10**6)}]'
    )
    began = process_time()
    with pytest.raises(GraphError, match="bytes"):
        parse_graph(text)
    with pytest.raises(GraphError, match="at most 4096 are allowed; got 50000"):
        parse_graph(text[: text.index("[", text.index("kernels"))] + "[" + ",".join([kernel] * 50_000) + "]}")
    assert process_time() - began < 5


def test_a_reader_can_be_given_tighter_limits():
    with pytest.raises(GraphError, match="at most 1 are allowed"):
        parse_graph(json.dumps(GOOD), limits=Limits(kernels=1))


def test_temporary_may_be_written_and_read_back_through_every_iteration():
    document = spoiled("iterations", 3)
    assert parse_graph(json.dumps(document)).iterations == 3


def test_rekey_changes_keys_and_nothing_else():
    graph = parse_graph(json.dumps(GOOD))
    other = graph.rekey({"w": "w-second"})
    assert graph.key_of(graph.by_name["w"]) == "good/w"
    assert other.key_of(other.by_name["w"]) == "w-second"
    assert other.kernels == graph.kernels
    assert other.digest != graph.digest
    with pytest.raises(ValueError, match="keys must name buffers"):
        graph.rekey({"v": "k"})


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_graph_is_the_same_each_time(name):
    assert len({SHIPPED[name]().graph.digest for _ in range(8)}) == 1
