"""Where results go: a folder, or a bucket of an S3 server on this machine; and what is said if they cannot."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from fairlead.video.errors import StoreError
from fairlead.video.objects import check_store, get_object, store_url
from fairlead.video.uploading import uploader
from fairlead.video.versions import make_app

RESULT = {"frames": [{"frame": 1, "kind": "object"}], "faces": 0}


# --- a folder


def test_a_result_is_one_whole_file(tmp_path):
    url = uploader(RESULT, (tmp_path / "a b").as_uri())
    (file,) = (tmp_path / "a b").iterdir()
    assert url == file.as_uri()
    assert json.loads(file.read_bytes()) == RESULT


def test_the_same_result_is_the_same_object_and_another_is_another(tmp_path):
    store = tmp_path.as_uri()
    assert uploader(RESULT, store) == uploader(RESULT, store)
    assert uploader({**RESULT, "faces": 1}, store) != uploader(RESULT, store)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_name_cannot_lead_out_of_the_store(tmp_path):
    assert uploader(RESULT, tmp_path.as_uri(), "mine").endswith("/mine.json")
    for name in ("../mine", "a/b", ".hidden", "x" * 101):
        with pytest.raises(ValueError, match="the name of a result"):
            uploader(RESULT, tmp_path.as_uri(), name)


def test_without_a_store_results_go_to_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("FAIRLEAD_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert store_url() == (tmp_path / "video-results").as_uri()


def test_a_folder_that_refuses_is_told_and_nothing_is_left(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"refuses: .*chmod u\+w .*or name another: FAIRLEAD_STORE="):
        uploader(RESULT, (tmp_path / "file" / "x").as_uri())
    (tmp_path / "store" / "mine.json").mkdir(parents=True)  # the last step fails: there is a folder in its place
    with pytest.raises(StoreError, match="refuses"):
        uploader(RESULT, (tmp_path / "store").as_uri(), "mine")
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["mine.json"]


def test_an_interruption_leaves_no_half_of_a_result(tmp_path, monkeypatch):
    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        uploader(RESULT, tmp_path.as_uri())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "s3:///prefix", "/plain/folder", "results", "https://host/bucket", "file://host/x", "file:x"],
)
def test_other_stores_are_refused_with_one_that_is_not(url, monkeypatch):
    with pytest.raises(StoreError, match=r"such as FAIRLEAD_STORE=file:///.*=s3://BUCKET/PREFIX"):
        uploader(RESULT, url)
    monkeypatch.setenv("FAIRLEAD_STORE", url)
    with pytest.raises(StoreError, match=url):
        make_app(4).functions["uploader"].setup()


def test_a_path_is_named_as_the_url_that_it_should_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=f"FAIRLEAD_STORE=file://{tmp_path}/results,"):
        uploader(RESULT, "results")


# --- a bucket


class Server:
    """An S3 server as a process of its own, which asks for credentials after so many calls."""

    def __init__(self, free_calls: int | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = dict(os.environ)
        if free_calls is not None:
            environment["INITIAL_NO_AUTH_ACTION_COUNT"] = str(free_calls)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until, "the S3 server does not answer."
                assert self._process.poll() is None, "the S3 server has ended."
                time.sleep(0.05)

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def kept_in(store: str, name: str) -> object:
    opened = S3Store.from_url(store, client_options={"allow_http": True})
    return json.loads(bytes(obstore.get(opened, name).bytes()))


@pytest.fixture
def credentials(monkeypatch):
    for name, value in (("ACCESS_KEY_ID", "somebody"), ("SECRET_ACCESS_KEY", "something"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.mark.usefixtures("credentials")
def test_a_bucket_gets_the_object_and_a_missing_one_is_told(monkeypatch):
    server = Server()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(StoreError, match=r"no bucket 'results'. Make it with: aws s3 mb s3://results"):
            uploader(RESULT, "s3://results/videos")
        server.make_bucket("results")
        url = uploader(RESULT, "s3://results/videos/")
        assert url.startswith("s3://results/videos/video-")
        assert kept_in("s3://results", url.removeprefix("s3://results/")) == RESULT
        assert uploader(RESULT, "s3://results", "mine") == "s3://results/mine.json"
        assert kept_in("s3://results", "mine.json") == RESULT
        assert json.loads(get_object("s3://results", "s3://results/mine.json")) == RESULT
        with pytest.raises(StoreError, match="no such object, or no bucket 'results'"):
            get_object("s3://results", "s3://results/other.json")
    finally:
        server.stop()
    with pytest.raises(StoreError, match=f"cannot be written at {server.url}: .*Check AWS_ENDPOINT_URL"):
        uploader(RESULT, "s3://results/videos")


def test_a_bucket_without_credentials_is_told_before_anybody_is_asked(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    with pytest.raises(StoreError, match=r"needs credentials\. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        uploader(RESULT, "s3://results/videos")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    check_store("s3://results/videos")


@pytest.mark.usefixtures("credentials")
def test_a_bucket_that_refuses_is_told(monkeypatch):
    server = Server(free_calls=1)
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        server.make_bucket("results")
        with pytest.raises(StoreError, match=r"permission denied\. Set AWS_ACCESS_KEY_ID"):
            uploader(RESULT, "s3://results/videos")
    finally:
        server.stop()
