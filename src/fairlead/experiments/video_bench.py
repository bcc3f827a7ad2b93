"""What live experiments with the video workflow have in common: what a machine needs for it, and one request."""

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from typing import Any

import msgspec

from fairlead.errors import FairleadError, MissingExtraError
from fairlead.video.errors import WeightsError
from fairlead.video.weights import CLIP, PULL, WEIGHTS, clip_state, models_folder, state_of


def check_video() -> None:
    """Raise what the workflow lacks on this machine, with what mends it: libraries, weights, the test clip."""
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


def ask(address: str, frames: int, limit_s: float, workflow: str = "video") -> Mapping[str, Any] | None:
    """One answer; None if there was none by then: who hangs up cancels the request."""
    connection = HTTPConnection(address, timeout=limit_s)
    try:
        body = msgspec.json.encode({"input": {"frames": frames}})
        connection.request("POST", f"/v1/workflows/{workflow}", body, {"content-type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    except TimeoutError:
        return None
    except (OSError, HTTPException) as error:
        raise FairleadError(f"The server at {address} does not answer: {error}.") from error
    finally:
        connection.close()
    if response.status != 200:
        raise FairleadError(f"The server answered {response.status}: {content[:300].decode('utf-8', 'replace')}")
    output: Mapping[str, Any] = msgspec.json.decode(content)["output"]
    return output
