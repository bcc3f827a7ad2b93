"""Version 1 of the video workflow with frames in an object store, as the Darly papers have it: functions pass URLs."""

import os
from datetime import timedelta
from functools import cache
from hashlib import sha256

import obstore
from obstore.store import LocalStore, S3Store

from fairlead.app import App, each, switch
from fairlead.video.uploading import check_store, store_url
from fairlead.video.versions import EXAMPLE, FRAMES, SLO, has_face, make_app


def make_stored_app(name: str) -> App:
    """The functions of version 1, each between a store that gives its frame and one that keeps it."""
    inner = make_app(1)
    app = App(name)

    def function(called, wrap):
        work = inner.functions[called]

        def prepare():
            check_store()
            work.prepare()

        return app.function(name=called, run_limit_s=300, setup=prepare)(lambda _ready, value: wrap(work, value))

    body = (
        function("framer", lambda cut, request: [{**item, "jpeg": put(item["jpeg"])} for item in cut(request)])
        >> each(
            function("detector", with_frame)
            >> switch(
                has_face,
                {True: function("analyzer", with_frame), False: function("recogniser", with_frame)},
                weights={True: 1, False: 3},
            ),
            items=FRAMES,
        )
        >> function("uploader", lambda upload, found: upload(found))
    )
    app.workflow("video", body, slo=SLO, example=EXAMPLE)
    return app


def with_frame(work, item):
    """What a function gives for an item whose frame is in the store; what it passes on is the URL again."""
    result = work({**item, "jpeg": get(item["jpeg"])})
    return {**result, "jpeg": item["jpeg"]} if "jpeg" in result else result


def put(frame: bytes) -> str:
    """Keeps a frame; its URL. The name is made of the content, so that a second attempt writes no second object."""
    name = f"frames/{sha256(frame).hexdigest()}.jpg"
    obstore.put(_store(store_url()), name, frame)
    return f"{store_url().rstrip('/')}/{name}"


def get(url: str) -> bytes:
    """The frame at a URL of the store."""
    root = store_url().rstrip("/")
    if not url.startswith(f"{root}/frames/"):
        raise ValueError(f"{url} is no frame in the store {root}.")
    return bytes(obstore.get(_store(store_url()), url.removeprefix(f"{root}/")).bytes())


@cache
def _store(url: str):
    if url.startswith("file:"):
        return LocalStore.from_url(url, mkdir=True)
    is_http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return S3Store.from_url(url, client_options={"allow_http": is_http, "timeout": timedelta(seconds=20)})
