"""A workflow from a document of the CNCF Serverless Workflow DSL; the functions it calls are Python."""

from pathlib import Path

from fairlead import App
from fairlead.app.dsl import write_workflow

app = App("desk")


@app.function
def check(text):
    """The text, and how much is wrong with it: what the document decides by."""
    return {"text": text, "faults": text.count("teh")}


@app.function
def correct(draft):
    """The text without faults."""
    return {"text": draft["text"].replace("teh", "the"), "faults": 0}


@app.function
def publish(draft):
    """What the reader sees."""
    return draft["text"].upper()


review = app.workflow_from(Path(__file__).with_name("08_review.yaml"), example="teh end")

if __name__ == "__main__":
    print(f"{review.name}: {review.spec.description} Due in {review.spec.slo_s} s.")
    print(review("teh end"))
    print(review("the end"))
    print(write_workflow(review, namespace="examples"))
