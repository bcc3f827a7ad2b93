"""What a photograph shows (brick, grass or gravel) within 150 ms: two models side by side, and a person if unsure.

See README.md.
"""

import binascii
import io
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

import numpy as np
from features import SIDE, describe, levelled
from PIL import Image, UnidentifiedImageError

from fairlead import App, fork, switch

HERE = Path(__file__).resolve().parent
LABELS = ("brick", "grass", "gravel")
SURE = 0.7
"""The least probability with which an answer is given without a person."""

app = App("photos")


@app.function
def preprocess(photo):
    """The middle of a PNG as what the models want: grey pixels for the network, a few numbers for the forest.

    A PNG comes as bytes, or in JSON as base64: the text itself, or `{"png": text}`.
    """
    data = photo.get("png") if isinstance(photo, dict) else photo
    try:
        data = b64decode(data, validate=True) if isinstance(data, str) else data
    except binascii.Error:
        data = None
    if not isinstance(data, bytes):
        raise ValueError('send a PNG: its bytes, or in JSON {"png": its base64}.')
    try:
        picture = Image.open(io.BytesIO(data), formats=["PNG"]).convert("L")
    except UnidentifiedImageError:
        raise ValueError(f"these {len(data)} bytes are no PNG.") from None
    if min(picture.size) < SIDE:
        raise ValueError(
            f"a photograph must have at least {SIDE} x {SIDE} pixels; got {picture.width} x {picture.height}."
        )
    left, top = (picture.width - SIDE) // 2, (picture.height - SIDE) // 2
    middle = picture.crop((left, top, left + SIDE, top + SIDE))
    pixels = levelled(np.asarray(middle, dtype=np.float32))
    return {"pixels": pixels.tobytes(), "features": describe(pixels).tolist()}


def load(name):
    """Gives the setup of a function: a session with one of the models, on one thread."""

    def setup():
        import onnxruntime  # noqa: PLC0415 (functions without a model start without it)

        data = (HERE / name).read_bytes()
        if f"{sha256(data).hexdigest()}  {name}" not in (HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
            raise ValueError(f"{HERE / name} differs from SHA256SUMS. Get it back with: git checkout {name}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    return setup


@app.function(batch=8, setup=load("network.onnx"))
def network(session, items):
    """Probabilities by the pixels."""
    pixels = np.stack([np.frombuffer(item["pixels"], np.float32).reshape(1, SIDE, SIDE) for item in items])
    return session.run(None, {"input": pixels})[0].tolist()


@app.function(batch=8, setup=load("forest.onnx"))
def forest(session, items):
    """Probabilities by the numbers that describe the pixels."""
    features = np.array([item["features"] for item in items], dtype=np.float32)
    return session.run(None, {"input": features})[0].tolist()


@app.function
def join(both):
    """What both models think, one by one and together."""
    by_network, by_forest = both
    together = np.mean(both, axis=0)
    return {
        "label": LABELS[together.argmax()],
        "probability": round(float(together.max()), 4),
        "network": LABELS[np.argmax(by_network)],
        "forest": LABELS[np.argmax(by_forest)],
    }


def is_sure(found):
    """Whether no person needs to look at it."""
    return found["network"] == found["forest"] and found["probability"] >= SURE


@app.function
def ask_person(found):
    """Puts it on the list of a person; here, only says so."""
    return {**found, "label": "unsure"}


@app.function
def answer(found):
    """What a caller wants to know."""
    return {"label": found["label"], "probability": found["probability"], "needs_person": found["label"] == "unsure"}


app.workflow(
    "label",
    preprocess
    >> fork(network, forest)
    >> join
    >> switch(is_sure, {True: None, False: ask_person}, weights={True: 9, False: 1})
    >> answer,
    slo="150ms",
    example={"png": b64encode((HERE / "gravel.png").read_bytes()).decode()},
)
