"""Whether this machine can do it: weights, a clip, something that presses, and control groups."""

from importlib.util import find_spec
from shutil import which

from fairlead.engine.live.limits.choose import make_limiter
from fairlead.errors import FairleadError, MissingExtraError
from fairlead.stress import MissingBurnerError
from fairlead.video.errors import WeightsError
from fairlead.video.weights import CLIP, PULL, WEIGHTS, clip_state, models_folder, state_of


def check_machine() -> None:
    """Raise what is missing, with what mends it, before anything is started."""
    for library in ("cv2", "onnxruntime", "obstore"):
        if find_spec(library) is None:
            raise MissingExtraError("The video workflow", library, "video")
    folder = models_folder()
    for weights in WEIGHTS.values():
        state = state_of(weights, folder)
        if state != "there":
            raise WeightsError(f"The weights {folder / weights.file} are {state}. Get them with: {PULL}")
    state = clip_state(folder)
    if state != "there":
        raise WeightsError(f"The test clip {folder / CLIP} is {state}. Make it with: {PULL}")
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
