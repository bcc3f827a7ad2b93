"""The video workflow of `fairlead.video`, in any of its four granularities. See README.md.

VIDEO_VERSION is 1 (five functions) to 4 (two). VIDEO_PASSING is how frames and findings pass between functions: in
`memory` (the default), or through the object `store` that FAIRLEAD_STORE names, by URL.
"""

import os

from fairlead.video.versions import make_app

VERSION = os.environ.get("VIDEO_VERSION", "1")
PASSING = os.environ.get("VIDEO_PASSING", "memory")

if VERSION not in ("1", "2", "3", "4"):
    raise ValueError(f"VIDEO_VERSION must be 1, 2, 3 or 4; got {VERSION!r}.")
if PASSING not in ("memory", "store"):
    raise ValueError(f"VIDEO_PASSING must be memory or store; got {PASSING!r}.")

app = make_app(int(VERSION), name="video", passing=PASSING)
