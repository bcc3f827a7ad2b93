"""The file that tells commands where a gateway is."""

import os
from threading import Event, Thread

import msgspec

from fairlead.engine.live.process import _write_address


def test_whoever_reads_it_while_it_is_written_finds_it_whole(tmp_path):
    path, stop, seen = tmp_path / "gateway.json", Event(), set()
    _write_address(tmp_path, "http://127.0.0.1:1", None)

    def read():
        while not stop.is_set():
            seen.add(path.read_bytes() if path.exists() else b"none")

    reader = Thread(target=read)
    reader.start()
    for _ in range(500):
        _write_address(tmp_path, "http://127.0.0.1:1", None)
    stop.set()
    reader.join()
    assert seen == {msgspec.json.encode({"pid": os.getpid(), "url": "http://127.0.0.1:1", "cacert": None})}


def test_only_its_owner_may_read_it_and_nothing_else_is_left(tmp_path):
    _write_address(tmp_path, "http://127.0.0.1:1", None)
    assert [file.name for file in tmp_path.iterdir()] == ["gateway.json"]
    assert (tmp_path / "gateway.json").stat().st_mode & 0o777 == 0o600
