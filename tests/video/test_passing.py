"""What passes between functions by URL, and what each call notes of its time."""

import pytest

from fairlead.video import passing
from fairlead.video.errors import StoreError
from fairlead.video.objects import get_object, put_object
from fairlead.video.passing import carried


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_STORE", (tmp_path / "store").as_uri())
    return tmp_path / "store"


def cut(_request):
    return [{"frame": 3, "jpeg": b"a jpeg"}, {"frame": 9, "jpeg": b"another"}]


def detect(item):
    assert isinstance(item["jpeg"], bytes)
    return {**item, "faces": []}


def recognise(item):
    return {"frame": item["frame"], "kind": "object", "size": len(item["jpeg"])}


def upload(found):
    return {"frames": found}


def run(how, *, is_timed=False):
    """Three stages and the uploader, called one after the other as the runtime does."""
    framer, detector, recogniser, uploader = (
        carried(called, work, how, is_timed=is_timed)
        for called, work in (("framer", cut), ("detector", detect), ("recogniser", recognise), ("uploader", upload))
    )
    items = framer({"frames": 2})
    return items, uploader([recogniser(detector(item)) for item in items])


FOUND = [{"frame": 3, "kind": "object", "size": 6}, {"frame": 9, "kind": "object", "size": 7}]


def test_through_the_store_only_urls_pass_and_the_answer_is_the_same(store):
    items, answer = run("store")
    assert [item["jpeg"].startswith((store / "frames").as_uri()) for item in items] == [True, True]
    assert answer == run("memory")[1] == {"frames": FOUND}
    assert len(list((store / "frames").iterdir())) == len(list((store / "found").iterdir())) == 2


@pytest.mark.usefixtures("store")
def test_the_detector_passes_the_url_on_and_puts_nothing():
    (item, _), _ = run("store")
    assert carried("detector", detect, "store")(item) == {**item, "faces": []}


@pytest.mark.usefixtures("store")
def test_all_that_the_monolith_found_is_one_object():
    passed = carried("monolith", lambda _request: FOUND, "store")({"frames": 2})
    assert list(passed) == ["found"]
    assert carried("uploader", upload, "store")(passed) == {"frames": FOUND}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("how", ["memory", "store"])
def test_every_call_notes_what_it_spent_once(how, monkeypatch):
    ticks = iter(range(1000))  # a second from one look at the clock to the next
    monkeypatch.setattr(passing, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(passing, "process_time", lambda: float(next(ticks)))
    _, answer = run(how, is_timed=True)
    spent = answer.pop("spent")
    assert answer == {"frames": FOUND}
    assert sorted((one["function"], one["frame"] or 0) for one in spent) == [
        ("detector", 3),
        ("detector", 9),
        ("framer", 0),
        ("recogniser", 3),
        ("recogniser", 9),
        ("uploader", 0),
    ]
    assert {(one["get_s"], one["run_s"], one["put_s"], one["cpu_s"]) for one in spent} == {(1.0, 1.0, 1.0, 5.0)}


def test_what_is_in_another_place_is_not_read(store):
    url = put_object(store.as_uri(), "frames/a.jpg", b"a jpeg")
    assert get_object(store.as_uri(), url) == b"a jpeg"
    (store.parent / "secret").write_bytes(b"secret")
    for other in ("file:///etc/passwd", f"{store.as_uri()}/../secret", f"{store.as_uri()}/frames/%2e%2e/%2e%2e/secret"):
        with pytest.raises(StoreError, match="is no object of the store"):
            get_object(store.as_uri(), other)
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        get_object(store.as_uri(), f"{store.as_uri()}/frames/b.jpg")
