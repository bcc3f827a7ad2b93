"""How frames and findings pass between functions: with the call, in the runtime's memory, or by URL through a store.

Through the store, as in Darly's thesis: the framer puts every frame, each function after it gets its frame by URL, and
what was found in a frame is an object too, which the uploader gets. Version 4 has no frames to pass, and one object
with all that was found. Faces, indices and times go with the call in either case: they are small, and a branch depends
on them.

With timing, every call also passes on what it spent, and the uploader's answer has it all under `spent`.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from time import perf_counter, process_time
from typing import Any, Literal, get_args

import msgspec

from fairlead.video.objects import get_object, put_object, store_url

Passing = Literal["memory", "store"]
PASSING: tuple[Passing, ...] = get_args(Passing)

FIRST = ("framer", "monolith")
"""Functions whose argument is the request."""

Work = Callable[[Any], Any]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one call spent, in seconds of the function's process: getting, working, putting, and CPU time of all three.

    `frame` is the index of its frame in the video; None for a call that is about the whole video.
    """

    function: str
    frame: int | None
    get_s: float
    run_s: float
    put_s: float
    cpu_s: float


def carried(called: str, work: Work, passing: Passing, *, is_timed: bool = False) -> Work:
    """The work of a function of that name, which takes its argument and gives its result in this way."""
    if passing == "memory" and not is_timed:
        return work
    read = _READS.get(called, _given) if passing == "store" else _given
    write = _WRITES.get(called, _made) if passing == "store" else _made

    def run(argument: Any) -> Any:
        spent = [] if called in FIRST else _taken(argument)
        cpu, began = process_time(), perf_counter()
        value = read(argument)
        got = perf_counter()
        result = work(value)
        done = perf_counter()
        passed_on = write(result, argument)
        if is_timed:
            frame = argument.get("frame") if called not in FIRST and isinstance(argument, dict) else None
            own = Spent(
                function=called,
                frame=frame,
                get_s=got - began,
                run_s=done - got,
                put_s=perf_counter() - done,
                cpu_s=process_time() - cpu,
            )
            _first(passed_on)["spent"] = [*spent, msgspec.to_builtins(own)]
        return passed_on

    return run


def _taken(argument: Any) -> list[Mapping[str, Any]]:
    """What the calls before spent, which is taken out of the argument."""
    items = argument if isinstance(argument, list) else [argument]
    return [entry for item in items for entry in item.pop("spent", ())]


def _first(value: Any) -> dict[str, Any]:
    """Where notes go: of several items the first takes them along."""
    item = value[0] if isinstance(value, list) else value
    assert isinstance(item, dict)
    return item


# --- through the store


def _given(argument: Any) -> Any:
    return argument


def _made(result: Any, _argument: Any) -> Any:
    return result


def _with_frame(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "jpeg": get_object(store_url(), item["jpeg"])}


def _found(argument: Any) -> list[Any]:
    """All that was found, in one object for all frames or in one for each."""
    found: list[Any] = []
    for reference in argument if isinstance(argument, list) else [argument]:
        value = msgspec.json.decode(get_object(store_url(), reference["found"]))
        found += value if isinstance(value, list) else [value]
    return found


def _put_frames(items: list[dict[str, Any]], _request: Any) -> list[dict[str, Any]]:
    return [{**item, "jpeg": _put("frames", item["jpeg"], "jpg")} for item in items]


def _pass_frame(result: dict[str, Any], item: Mapping[str, Any]) -> dict[str, Any]:
    return {**result, "jpeg": item["jpeg"]}


def _put_found(result: Any, _argument: Any) -> dict[str, Any]:
    return {"found": _put("found", msgspec.json.encode(result), "json")}


def _put(kind: str, data: bytes, ending: str) -> str:
    """Named after its content, so that a second attempt writes no second object."""
    return put_object(store_url(), f"{kind}/{sha256(data).hexdigest()}.{ending}", data)


_MODELS = ("analyzer", "recogniser", "inference", "big-inference")
_READS: Mapping[str, Work] = {
    **dict.fromkeys(("detector", *_MODELS), _with_frame),
    "uploader": _found,
}
_WRITES: Mapping[str, Callable[[Any, Any], Any]] = {
    "framer": _put_frames,
    "detector": _pass_frame,
    **dict.fromkeys((*_MODELS, "monolith"), _put_found),
}
