"""What a request asks for, and which videos it may name.

The functions read whatever path or URL they are given; who may call a served app is not known. So a request names a
file inside one folder, or a URL on a host that the operator allows, or brings the video along.
"""

import base64
import binascii
import os
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from fairlead.video.errors import UnreadableVideoError, WeightsError
from fairlead.video.weights import CLIP, PULL, models_folder

FOLDER_VARIABLE = "FAIRLEAD_VIDEOS"
"""The environment variable that names the folder whose videos a request may name; the working folder without it."""

HOSTS_VARIABLE = "FAIRLEAD_VIDEO_HOSTS"
"""The environment variable that lists the hosts, with commas, from which videos may be fetched; none without it."""


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_seeking": "seek"}):
    """A request. Without a video it is about the test clip; `name` is that of the stored result."""

    video: str | None = None
    base64: str | None = None
    frames: int = 16
    every_s: float | None = None
    is_seeking: bool = False
    name: str | None = None


def job_of(request: object) -> Job:
    """The request, checked. A body that is bytes is a video itself."""
    if isinstance(request, bytes):
        return Job(base64=base64.b64encode(request).decode())
    try:
        job = msgspec.convert({} if request is None else request, Job)
    except msgspec.ValidationError as error:
        raise ValueError(f'a request is such as {{"video": "name.mp4", "frames": 16}}: {error}.') from None
    if job.video is not None and job.base64 is not None:
        raise ValueError("a request has one video: give `video` (a name or a URL) or `base64`, not both.")
    return job


def video_of(job: Job) -> Path | bytes | str:
    """The video of a job, as the framer takes it. UnreadableVideoError where it may not be read."""
    if job.base64 is not None:
        try:
            return base64.b64decode(job.base64, validate=True)
        except binascii.Error:
            raise UnreadableVideoError("What is given as base64 is not base64.") from None
    if job.video is None:
        clip = models_folder() / CLIP
        if not clip.is_file():
            raise WeightsError(f"The test clip {clip} is missing. Make it with: {PULL}")
        return clip
    if "://" in job.video:
        host = urlsplit(job.video).hostname or ""
        allowed = [each.strip() for each in os.environ.get(HOSTS_VARIABLE, "").split(",") if each.strip()]
        if host not in allowed:
            raise UnreadableVideoError(
                f"Videos from {host!r} are not allowed. Allow them with: {HOSTS_VARIABLE}={host}"
            )
        return job.video
    folder = Path(os.environ.get(FOLDER_VARIABLE) or ".").resolve()
    path = (folder / job.video).resolve()
    if not path.is_relative_to(folder):
        raise UnreadableVideoError(
            f"{job.video} lies outside of {folder}. Name another folder: {FOLDER_VARIABLE}=FOLDER"
        )
    return path
