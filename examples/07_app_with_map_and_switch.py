"""An app whose shape depends on its data: something per item, one of two ways, and two things side by side."""

from fairlead import App, each, fork, switch

app = App("video")


@app.function
def split(video):
    """The frames of a video."""
    return [{"frame": i, "faces": (i * 7) % 3} for i in range(video["frames"])]


@app.function(batch=4)
def detect(frames):
    """Whether there are faces, for a batch of frames of any videos."""
    return [{**frame, "found": frame["faces"] > 0} for frame in frames]


@app.function
def blur(frame):
    """The frame without faces."""
    return {**frame, "blurred": True}


@app.function
def encode(frames):
    """The video again; gets the list of what came of every frame."""
    return {"frames": len(frames), "blurred": sum(frame.get("blurred", False) for frame in frames)}


@app.function
def store(result):
    """One of two things that happen at once."""
    return f"stored {result['frames']} frames"


@app.function
def notify(result):
    """The other."""
    return f"{result['blurred']} were blurred"


def has_faces(frame):
    """Which way a frame goes: a plain function, called with what `detect` gave for it."""
    return frame["found"]


# split ---> detect, per frame ---> blur, if there are faces ---> encode, once all are done ---> store and notify
body = (
    split
    >> each(
        detect >> switch(has_faces, {True: blur, False: None}, weights={True: 2, False: 1}),
        items=(4, 12),  # how many to expect: only the simulator and the planner ask
    )
    >> encode
    >> fork(store, notify)
)
publish = app.workflow("publish", body, slo="2s", example={"frames": 6})

if __name__ == "__main__":
    for stage in publish.spec.stages:
        print(f"{stage.name:7} after {', '.join(stage.after) or 'the call'}")
    print(publish({"frames": 6}))
