"""A workflow that works on a real video: faces and their emotions where there are any, else objects, frame by frame.

Needs the extras `video` and `video-clip`, and the weights that `fairlead models pull` gets. Serve it with
`fairlead serve examples/12_video_workflow.py`; `make_app(4)` is the same work in two functions instead of five.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from fairlead.video.versions import make_app

app = make_app(1, name="video")

if __name__ == "__main__":
    from fairlead.video.clip import check_labels, make_clip

    with TemporaryDirectory() as folder:
        make_clip(Path(folder) / "clip.mp4", seconds=6)
        os.environ["FAIRLEAD_VIDEOS"] = folder  # requests may name the videos in it
        os.environ["FAIRLEAD_STORE"] = Path(folder).as_uri()  # or s3://bucket/prefix
        answer = app.workflows["video"]({"video": "clip.mp4", "frames": 7})
        stored = Path(answer["stored"].removeprefix("file://"))
        print(f"stored {stored.name}, {stored.stat().st_size} bytes")
    for frame in answer["frames"]:
        shown = frame["emotion"] if frame["kind"] == "face" else frame["objects"][0]["name"]
        print(f"{frame['time_s']:5.2f} s  {frame['kind']:6}  {shown}")
    print("as expected" if not check_labels(answer) else check_labels(answer))
