"""The video workflow of `fairlead.video` in any of its four granularities, or with frames in an object store. See README.md.

VIDEO_VERSION is 1 (five functions) to 4 (two). With VIDEO_FRAMES=store, which only version 1 has, frames pass between
functions by URL instead of in shared memory, through the store that FAIRLEAD_STORE names.
"""

import os

from frames import make_stored_app

from fairlead.video.versions import VERSIONS, make_app

version = os.environ.get("VIDEO_VERSION", "1")
frames = os.environ.get("VIDEO_FRAMES", "memory")
if version not in map(str, VERSIONS) or frames not in ("memory", "store") or (frames == "store" and version != "1"):
    raise ValueError(
        f"VIDEO_VERSION must be 1 to 4, and VIDEO_FRAMES memory or, in version 1, store; got {version!r} and {frames!r}."
    )

app = make_stored_app("video") if frames == "store" else make_app(int(version), name="video")
