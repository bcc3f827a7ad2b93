"""The one user: asks at fixed instants, gives up when the next is due, and looks at every answer."""

from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any

import msgspec

from fairlead.experiments.video_bench import ask


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request: when it was due, how long its answer took (None if it was given up), and what was wrong in it."""

    due_s: float
    latency_s: float | None
    differences: tuple[str, ...] = ()

    def is_met(self, slo_s: float) -> bool:
        """Whether it was answered in time."""
        return self.latency_s is not None and self.latency_s <= slo_s


def ask_on_time(settings: Mapping[str, Any], duration_s: float, began: float, address: str) -> list[Asked]:
    """A request every so many seconds, as many for every contestant.

    In a closed loop a slow server would be asked less often, so that its slowness hides itself.
    """
    every_s = settings["every_s"]
    found = []
    for i in range(int(duration_s / every_s)):
        due = began + i * every_s
        sleep(max(0.0, due - monotonic()))
        left_s = due + every_s - monotonic()
        answer = ask(address, settings["frames"], left_s) if left_s > 0 else None
        latency_s = None if answer is None else monotonic() - due
        differences = () if answer is None else tuple(_differences(answer))
        found.append(Asked(due_s=i * every_s, latency_s=latency_s, differences=differences))
    return found


def _differences(answer: Mapping[str, Any]) -> list[str]:
    from fairlead.video.clip import check_labels  # noqa: PLC0415 - needs OpenCV, which is optional

    return check_labels(answer)
