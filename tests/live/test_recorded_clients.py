"""Clients of the Open Inference Protocol: the very bytes that tritonclient 2.73.0 and KServe's SDK 0.21.0 send.

Heads and bodies were recorded between these clients and a gateway, so neither package is needed here.
"""

import json
import struct

import numpy as np
import pytest
from gateway_world import SmallHost, read_message, running

TRITON = b"POST /v2/models/same/infer HTTP/1.1\r\nUser-Agent: python/gevent-http-client-2.6.1\r\n"
KSERVE = (
    b"POST /v2/models/same/infer HTTP/1.1\r\nHost: 127.0.0.1:18772\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\n"
)
RECORDED = {
    "triton-json": (
        TRITON + b"Host: 127.0.0.1:18771\r\nContent-Length: 149\r\n\r\n"
        b'{"id":"call-1","inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1.0]}],'
        b'"outputs":[{"name":"output","parameters":{"binary_data":false}}]}',
        {"output": ("FP32", [1, 1], [1.0])},
    ),
    "triton-default": (
        TRITON + b"Inference-Header-Content-Length: 134\r\nHost: 127.0.0.1:18771\r\nContent-Length: 138\r\n\r\n"
        b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}],'
        b'"parameters":{"binary_data_output":true}}\x00\x00\x80?',
        {"output": ("FP32", [1, 1], b"\x00\x00\x80?")},
    ),
    "triton-json-in-raw-out": (
        TRITON + b"Host: 127.0.0.1:18771\r\nContent-Length: 143\r\n\r\n"
        b'{"inputs":[{"name":"x","shape":[2,3],"datatype":"INT32","data":[0,1,2,3,4,5]}],'
        b'"outputs":[{"name":"output","parameters":{"binary_data":true}}]}',
        {"output": ("INT32", [2, 3], struct.pack("<6i", *range(6)))},
    ),
    "triton-bytes": (
        TRITON + b"Inference-Header-Content-Length: 134\r\nHost: 127.0.0.1:18771\r\nContent-Length: 146\r\n\r\n"
        b'{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":12}}],'
        b'"parameters":{"binary_data_output":true}}\x03\x00\x00\x00\xff\xd8\x00\x01\x00\x00\x00a',
        {"output": ("BYTES", [2], b"\x03\x00\x00\x00\xff\xd8\x00\x01\x00\x00\x00a")},
    ),
    "triton-two-inputs": (
        TRITON + b"Inference-Header-Content-Length: 213\r\nHost: 127.0.0.1:18771\r\nContent-Length: 223\r\n\r\n"
        b'{"inputs":[{"name":"a","shape":[2],"datatype":"BOOL","parameters":{"binary_data_size":2}},'
        b'{"name":"b","shape":[1],"datatype":"UINT64","parameters":{"binary_data_size":8}}],'
        b'"parameters":{"binary_data_output":true}}\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff',
        {"a": ("BOOL", [2], b"\x01\x00"), "b": ("UINT64", [1], b"\xff" * 8)},
    ),
    "triton-empty": (
        TRITON + b"Inference-Header-Content-Length: 134\r\nHost: 127.0.0.1:18771\r\nContent-Length: 134\r\n\r\n"
        b'{"inputs":[{"name":"x","shape":[0,3],"datatype":"FP32","parameters":{"binary_data_size":0}}],'
        b'"parameters":{"binary_data_output":true}}',
        {"output": ("FP32", [0, 3], b"")},
    ),
    "kserve-json": (
        KSERVE + b"content-type: application/json\r\nContent-Length: 104\r\n\r\n"
        b'{"id":"call-1","model_name":"same","inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1.0]}]}',
        {"output": ("FP32", [1, 1], [1.0])},
    ),
    "kserve-raw-in": (
        KSERVE + b"inference-header-content-length: 157\r\ncontent-type: application/octet-stream\r\n"
        b"Content-Length: 161\r\n\r\n"
        b'{"id":"88ba28d0-6e9d-42fd-9ef0-0550a42c676e","model_name":"same",'
        b'"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}\x00\x00\x80?',
        {"output": ("FP32", [1, 1], [1.0])},
    ),
    "kserve-raw-out": (
        KSERVE + b"inference-header-content-length: 221\r\ncontent-type: application/octet-stream\r\n"
        b"Content-Length: 223\r\n\r\n"
        b'{"id":"c420d61b-9261-41fb-9404-57a3299cf6fb","model_name":"same",'
        b'"inputs":[{"name":"x","shape":[1,1],"datatype":"FP16","parameters":{"binary_data_size":2}}],'
        b'"outputs":[{"name":"output","parameters":{"binary_data":true}}]}\x00<',
        {"output": ("FP16", [1, 1], b"\x00<")},
    ),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with running(SmallHost({"shop.same": lambda value, _: value}), tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_request_is_answered_with_its_own_tensors(gateway, name):
    request, expected = RECORDED[name]
    status, headers, body = read_message(gateway, request)
    assert status == 200, body
    size = int(headers.get("inference-header-content-length", len(body)))
    first = size
    found = {}
    for output in json.loads(body[:size])["outputs"]:
        data = output.get("data")
        if data is None:
            end = first + output["parameters"]["binary_data_size"]
            data, first = body[first:end], end
        found[output["name"]] = (output["datatype"], output["shape"], data)
    assert found == expected
    assert first == len(body)


def test_an_id_comes_back_and_raw_answers_are_declared_as_bytes(gateway):
    _, headers, body = read_message(gateway, RECORDED["triton-json"][0])
    assert json.loads(body)["id"] == "call-1"
    assert headers["content-type"] == "application/json"
    _, headers, _ = read_message(gateway, RECORDED["triton-default"][0])
    assert headers["content-type"] == "application/octet-stream"


def test_the_extension_is_advertised(gateway):
    assert gateway.send("GET", "/v2").json()["extensions"] == ["binary_tensor_data"]


RAW = [
    ("BOOL", np.array([True, False])),
    ("UINT8", np.array([0, 255], np.uint8)),
    ("UINT16", np.array([0, 65535], np.uint16)),
    ("UINT32", np.array([0, 2**32 - 1], np.uint32)),
    ("UINT64", np.array([0, 2**64 - 1], np.uint64)),
    ("INT8", np.array([-128, 127], np.int8)),
    ("INT16", np.array([-(2**15), 2**15 - 1], np.int16)),
    ("INT32", np.array([-(2**31), 2**31 - 1], np.int32)),
    ("INT64", np.array([-(2**63), 2**63 - 1], np.int64)),
    ("FP16", np.array([0.1, -65504.0, np.inf], np.float16)),
    ("BF16", np.array([0x3FC0, 0xC000, 0x7F80, 0x0001], np.uint16)),  # 1.5, -2, infinity, the least above 0
    ("FP32", np.array([0.1, np.float32(3.4028235e38), -np.inf], np.float32)),
    ("FP64", np.array([0.1, 1e308, np.nan])),
]


@pytest.mark.parametrize(("datatype", "array"), RAW, ids=[datatype for datatype, _ in RAW])
def test_raw_elements_come_back_bit_by_bit(gateway, datatype, array):
    raw = array.tobytes()
    tensor = {"name": "x", "shape": [array.size, 1], "datatype": datatype, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    answer = gateway.send(
        "POST", "/v2/models/same/infer", head + raw, {"Inference-Header-Content-Length": str(len(head))}
    )
    assert answer.status == 200, answer.body
    size = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:size])["outputs"]
    assert (output["datatype"], output["shape"]) == (datatype, [array.size, 1])
    assert answer.body[size:] == raw


def raw_input(shape, datatype, size, **more):
    return {"name": "x", "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}, **more}


@pytest.mark.parametrize(
    ("tensor", "raw", "length", "words"),
    [
        (raw_input([1], "FP32", 4), b"abcd", "9999", "Inference-Header-Content-Length"),
        (raw_input([1], "FP32", 4), b"abcd", "-1", "Inference-Header-Content-Length"),
        (raw_input([1], "FP32", 4), b"abcd", "x", "Inference-Header-Content-Length"),
        (raw_input([1], "FP32", 8), b"abcd", None, "4 at most"),
        (raw_input([1], "FP32", True), b"abcd", None, "number of bytes"),
        (raw_input([1], "FP32", -4), b"abcd", None, "number of bytes"),
        (raw_input([1], "FP32", 4, data=[1.0]), b"abcd", None, "instead of data"),
        (raw_input([1], "FP32", 3), b"abc", None, "no whole number"),
        (raw_input([2], "FP32", 4), b"abcd", None, "1 elements"),
        (raw_input([1], "FP32", 4), b"abcdef", None, "2 bytes follow"),
        (raw_input([1], "BYTES", 3), b"abc", None, "end within an element"),
        (raw_input([1], "BYTES", 6), b"\xff\xff\xff\xffab", None, "end within an element"),
        ({"name": "x", "shape": [1], "datatype": "FP32"}, b"", None, "neither data nor"),
        ({"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}, b"abcd", None, "4 bytes follow"),
    ],
)
def test_raw_bytes_that_do_not_fit_are_refused(gateway, tensor, raw, length, words):
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": length or str(len(head))}
    answer = gateway.send("POST", "/v2/models/same/infer", head + raw, headers)
    assert answer.status == 400
    assert words in answer.json()["error"]
