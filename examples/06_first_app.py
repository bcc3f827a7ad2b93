"""A first app: two functions, one of them batched, a workflow made of them, and how soon it must answer.

Serve it with `fairlead serve examples/06_first_app.py`. Run as a plain script, it is called like any Python.
"""

from fairlead import App

app = App("reviews")


def load_words():
    """Runs once per instance, before it takes work: where a model would be loaded."""
    return {"good": 1, "great": 2, "bad": -1, "awful": -2}


@app.function
def split(text):
    """The words of a text."""
    return text.lower().split()


@app.function(batch=8, setup=load_words)  # in batches of 1, 2, 4 or 8, so it takes and returns lists
def score(words_known, batch):
    """How much is praised; the result of `setup` comes first."""
    return [sum(words_known.get(word, 0) for word in words) for words in batch]


rate = app.workflow("rate", split >> score, slo="100ms", example="A great story, but bad light")

if __name__ == "__main__":
    print("a function: ", split("Good light"))
    print("a batch:    ", score([["good"], ["bad", "awful"]]))
    print("a workflow: ", rate("A great story, but bad light"))
