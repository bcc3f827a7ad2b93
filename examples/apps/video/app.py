"""The video workflow of `fairlead.video`, in any of its four granularities. See README.md.

VIDEO_VERSION is 1 (five functions) to 4 (two), or `store`: version 1 with frames that pass between functions by URL,
through the object store that FAIRLEAD_STORE names, instead of in shared memory.
"""

import os

from fairlead.video.versions import make_app

VERSION = os.environ.get("VIDEO_VERSION", "1")

if VERSION == "store":
    from frames import make_stored_app

    app = make_stored_app("video")
elif VERSION in ("1", "2", "3", "4"):
    app = make_app(int(VERSION), name="video")
else:
    raise ValueError(f"VIDEO_VERSION must be 1, 2, 3, 4 or store; got {VERSION!r}.")
