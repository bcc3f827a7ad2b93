"""Makes up tickets by a seed, trains the model of this app on them, and says how good it is.

python examples/apps/tickets/train.py [--check]
"""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from making import main  # noqa: E402

OPENINGS = ("Hello,", "Dear team,", "Hi there,", "Good morning,", "", "")
TOPICS = {
    "billing": (
        "I was charged {money} twice this month",
        "the invoice says {money} but I agreed to less",
        "please refund the {money} that you took from my card",
        "my payment of {money} does not appear on the invoice",
        "why is there a fee of {money} on my bill",
        "I want to change the card that pays for my subscription",
    ),
    "delivery": (
        "my parcel {order} has not arrived yet",
        "order {order} was delivered to the wrong address",
        "where is the shipment {order}",
        "the courier left the package {order} in the rain",
        "can I change the address of order {order}",
        "the box {order} came damaged and half empty",
    ),
    "technical": (
        "the app shows {fault} when I log in",
        "I get {fault} as soon as I open the page",
        "my device does not connect any more and shows {fault}",
        "the update fails with {fault}",
        "the screen stays black after the restart",
        "the password page does not load and says {fault}",
    ),
}
CLOSINGS = (
    "Please help.",
    "Can you look into it?",
    "I am waiting for your answer.",
    "This is the second time I write.",
    "Thank you.",
    "I paid for the order, and the page says nothing.",  # words of all three, as people write
)


def tickets(rng: np.random.Generator, count: int) -> tuple[list[str], list[str]]:
    """That many tickets of each kind, and of which kind they are."""
    texts, labels = [], []
    for queue, sentences in TOPICS.items():
        for _ in range(count):
            sentence = sentences[rng.integers(len(sentences))].format(
                money=f"{rng.integers(5, 300)} euros",
                order=f"{'ABCDE'[rng.integers(5)]}E-{rng.integers(1000, 10000)}",
                fault=f"error {rng.integers(100, 600)}",
            )
            opening, closing = OPENINGS[rng.integers(len(OPENINGS))], CLOSINGS[rng.integers(len(CLOSINGS))]
            texts.append(f"{opening} {sentence}. {closing}".strip())
            labels.append(queue)
    return texts, labels


def make() -> dict[str, bytes]:
    """The model as JSON. Numbers are rounded: what differs from machine to machine is beyond the sixth digit."""
    rng = np.random.default_rng(0)
    texts, labels = tickets(rng, 300)
    unseen, right = tickets(rng, 100)
    vectoriser = TfidfVectorizer(token_pattern=r"(?u)\b[a-zA-Z]{2,}\b")  # numbers are for the functions after it
    classifier = LogisticRegression(C=10, tol=1e-8, max_iter=1000).fit(vectoriser.fit_transform(texts), labels)
    share = float((classifier.predict(vectoriser.transform(unseen)) == np.array(right)).mean())
    print(f"{share:.1%} of {len(right)} tickets that it was not trained with")
    model = {
        "words": vectoriser.get_feature_names_out().tolist(),
        "idf": vectoriser.idf_.round(6).tolist(),
        "coefficients": classifier.coef_.round(6).tolist(),
        "intercepts": classifier.intercept_.round(6).tolist(),
    }
    return {"model.json": json.dumps(model).encode() + b"\n"}


if __name__ == "__main__":
    main(make, HERE)
