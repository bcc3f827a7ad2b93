"""The video workflow with five functions, ready to be served and measured:

    fairlead models pull
    fairlead serve src/fairlead/video/app.py

A request is `{"video": "name.mp4", "frames": 16}`; without a video, the test clip.
"""

from fairlead.video.versions import make_app

app = make_app(1, name="video")
