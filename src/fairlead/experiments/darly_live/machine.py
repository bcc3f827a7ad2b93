"""Whether this machine can do it: weights, a clip, something that presses, and control groups."""

from shutil import which

from fairlead.engine.live.limits.choose import make_limiter
from fairlead.errors import FairleadError
from fairlead.experiments.video_bench import check_video
from fairlead.stress import MissingBurnerError


def check_machine() -> None:
    """Raise what is missing, with what mends it, before anything is started."""
    check_video()
    if which("stress-ng") is None:
        raise MissingBurnerError("stress-ng is not installed. Install it with: apt-get install stress-ng")
    limiter = make_limiter()
    try:
        if limiter.kind == "affinity":
            raise FairleadError(
                "Nodes of different speed need control groups, and none can be made here. Run as root: sudo fairlead "
                "reproduce darly-live."
            )
    finally:
        limiter.close()
