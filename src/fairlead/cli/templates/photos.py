"""Photos: find the faces, then say what is there. The wait stands for an accelerator; the rest is ordinary Python."""

import time

from fairlead import App

app = App("photos")
app.node("box", vcpus=1.25)  # room for one `detect` and one `caption` at a time


def load_model() -> str:
    """Run once per instance, before its first batch."""
    time.sleep(0.1)
    return "faces-1"


@app.function(batch=range(1, 9), vcpus=1, setup=load_model)
def detect(model: str, photos: list[str]) -> list[dict[str, object]]:
    """One pass over up to eight photos: 8 ms, and 2 ms for each."""
    time.sleep(0.008 + 0.002 * len(photos))
    return [{"photo": photo, "faces": len(photo) % 4, "by": model} for photo in photos]


@app.function(vcpus=0.25)
def caption(found: dict[str, object]) -> str:
    """What a person reads."""
    return f"{found['photo']}: {found['faces']} faces"


app.workflow("main", detect >> caption, slo="80ms", example="beach.jpg")
