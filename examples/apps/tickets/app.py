"""Tickets of a shop's customers: sorted into a queue, and answered with what can be found in them. See README.md."""

import json
import re
from hashlib import sha256
from pathlib import Path

from fairlead import App, switch

HERE = Path(__file__).resolve().parent
QUEUES = ("billing", "delivery", "technical")
SURE = 0.6
"""The least probability with which a ticket goes to a queue without a person."""

app = App("tickets")


def read_model():
    """What `train.py` wrote: words with their weights, and for each queue how much each word speaks for it."""
    data = (HERE / "model.json").read_bytes()
    if f"{sha256(data).hexdigest()}  model.json" not in (HERE / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        raise ValueError(f"{HERE / 'model.json'} differs from SHA256SUMS. Get it back with: git checkout model.json")
    return json.loads(data)


def load_vectoriser():
    """scikit-learn's TF-IDF, with the words and weights of the model."""
    import numpy as np  # noqa: PLC0415 (only this function and the next need scikit-learn)
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415

    model = read_model()
    vectoriser = TfidfVectorizer(vocabulary=model["words"])
    vectoriser.idf_ = np.array(model["idf"])
    return vectoriser


def load_classifier():
    """scikit-learn's logistic regression, with the coefficients of the model."""
    import numpy as np  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    model = read_model()
    classifier = LogisticRegression()
    classifier.classes_ = np.array(QUEUES)
    classifier.coef_, classifier.intercept_ = np.array(model["coefficients"]), np.array(model["intercepts"])
    return classifier


@app.function(batch=8, setup=load_vectoriser)
def vectorise(vectoriser, tickets):
    """The texts, each with the words that the model knows: their numbers, and how much each weighs."""
    for text in tickets:
        if not isinstance(text, str):
            raise ValueError(f"a ticket is a text; got {type(text).__name__}.")
    rows = vectoriser.transform(tickets)
    return [
        {"text": text, "words": row.indices.tolist(), "weights": row.data.tolist()}
        for text, row in zip(tickets, rows, strict=True)
    ]


@app.function(batch=8, setup=load_classifier)
def classify(classifier, items):
    """The texts, each with its likeliest queue."""
    from scipy.sparse import csr_array  # noqa: PLC0415

    starts = [0]
    for item in items:
        starts.append(starts[-1] + len(item["words"]))
    words = [word for item in items for word in item["words"]]
    weights = [weight for item in items for weight in item["weights"]]
    rows = csr_array((weights, words, starts), shape=(len(items), classifier.coef_.shape[1]))
    return [
        {"text": item["text"], "queue": QUEUES[row.argmax()], "probability": round(float(row.max()), 4)}
        for item, row in zip(items, classifier.predict_proba(rows), strict=True)
    ]


def route(item):
    """Which way a ticket goes."""
    return item["queue"] if item["probability"] >= SURE else "person"


@app.function
def billing(item):
    """Looks for what was charged."""
    return {**item, "found": re.findall(r"\d+(?:\.\d\d)? (?:euros|dollars)", item["text"])}


@app.function
def delivery(item):
    """Looks for numbers of orders."""
    return {**item, "found": re.findall(r"\b[A-Z]{2}-\d{4}\b", item["text"])}


@app.function
def technical(item):
    """Looks for error codes."""
    return {**item, "found": re.findall(r"\berror \d{3}\b", item["text"])}


@app.function
def person(item):
    """Leaves it to somebody."""
    return {**item, "queue": "person", "found": []}


@app.function
def answer(item):
    """What is written back."""
    about = f" about {', '.join(item['found'])}" if item["found"] else ""
    who = "Somebody" if item["queue"] == "person" else f"Our {item['queue']} team"
    return {
        "queue": item["queue"],
        "probability": item["probability"],
        "reply": f"Thank you for your message. {who} will write to you{about} today.",
    }


app.workflow(
    "answer-ticket",
    vectorise
    >> classify
    >> switch(
        route,
        {"billing": billing, "delivery": delivery, "technical": technical, "person": person},
        weights={"billing": 3, "delivery": 3, "technical": 3, "person": 1},
    )
    >> answer,
    slo="100ms",
    example="My parcel DE-4711 has not arrived, where is it?",
)
