"""An ensemble and a cascade of networks that read handwritten digits. See README.md."""

from hashlib import sha256
from pathlib import Path

import numpy as np

from fairlead import App, fork, switch

HERE = Path(__file__).resolve().parent
THRESHOLD = 0.85
"""The small network is believed if it is at least as sure as this; `train.py` chose it, on digits kept for that."""

app = App("pipelines")


def load(name):
    """Gives the setup of a function: a session with one of the networks, on one thread."""

    def setup():
        import onnxruntime  # noqa: PLC0415 (functions without a network start without it)

        data = (HERE / name).read_bytes()
        if f"{sha256(data).hexdigest()}  {name}" not in (HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
            raise ValueError(f"{HERE / name} differs from SHA256SUMS. Get it back with: git checkout {name}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    return setup


@app.function
def prepare(pixels):
    """A digit as numbers from 0 to 1; scikit-learn has them as 64 numbers from 0 to 16, row by row."""
    values = np.asarray(pixels, dtype=np.float32)
    if values.shape != (64,) or not ((values >= 0) & (values <= 16)).all():
        raise ValueError("a digit is a list of 64 numbers from 0 to 16: 8 rows of 8 pixels.")
    return {"digit": (values / 16).tolist()}


def probabilities(session, items):
    """What a network gives for a batch: for each digit the probabilities of 0 to 9."""
    return session.run(None, {"input": np.array([item["digit"] for item in items], dtype=np.float32)})[0]


@app.function(batch=8, setup=load("small.onnx"))
def small(session, items):
    """The digits, each with what the small network makes of it."""
    return [{**item, "found": row.tolist(), "by": "small"} for item, row in _rows(session, items)]


@app.function(batch=8, setup=load("large.onnx"))
def large(session, items):
    """Likewise, by the large network. Where another has looked before, the surer of both counts."""
    results = []
    for item, row in _rows(session, items):
        is_surer = row.max() >= max(item.get("found", [0]))
        results.append({**item, "found": row.tolist(), "by": "large"} if is_surer else item)
    return results


@app.function(batch=8, setup=load("linear.onnx"))
def linear(session, items):
    """Likewise, by a logistic regression: the cheapest of the three."""
    return [{**item, "found": row.tolist(), "by": "linear"} for item, row in _rows(session, items)]


def _rows(session, items):
    return zip(items, probabilities(session, items), strict=True)


def is_sure(item):
    """Whether the small network may answer alone."""
    return max(item["found"]) >= THRESHOLD


@app.function
def answer(item):
    """What a caller wants to know."""
    found = item["found"]
    return {"digit": int(np.argmax(found)), "confidence": round(max(found), 4), "by": item["by"]}


@app.function
def average(items):
    """What the three think together."""
    found = np.mean([item["found"] for item in items], axis=0)
    votes = {item["by"]: int(np.argmax(item["found"])) for item in items}
    return {"digit": int(found.argmax()), "confidence": round(float(found.max()), 4), "votes": votes}


# The first digit of scikit-learn's set, a 0.
ZERO = "0 0 5 13 9 1 0 0 0 0 13 15 10 15 5 0 0 3 15 2 0 11 8 0 0 4 12 0 0 8 8 0 0 5 8 0 0 9 8 0 0 4 11 0 1 12 7 0 "
ZERO += "0 2 14 5 10 12 0 0 0 0 6 13 10 0 0 0"
EXAMPLE = [int(number) for number in ZERO.split()]

app.workflow("ensemble", prepare >> fork(small, large, linear) >> average, slo="60ms", example=EXAMPLE)
app.workflow(
    "cascade",
    prepare >> small >> switch(is_sure, {True: None, False: large}, weights={True: 3, False: 1}) >> answer,
    slo="60ms",
    example=EXAMPLE,
)
