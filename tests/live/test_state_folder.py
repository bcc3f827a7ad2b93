"""The state folder: one gateway at a time, and nothing of it for other users."""

import os
import stat

import pytest

from fairlead.engine.live.statefolder import sole_user
from fairlead.errors import ConfigError


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_its_lock_are_their_owners_only(tmp_path):
    with sole_user(tmp_path / "state", print):
        assert (mode(tmp_path / "state"), mode(tmp_path / "state" / "gateway.lock")) == (0o700, 0o600)


def test_a_folder_and_a_lock_that_others_could_open_are_repaired(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    os.chmod(state, 0o755)
    (state / "gateway.lock").touch(0o644)
    with sole_user(state, print):
        assert (mode(state), mode(state / "gateway.lock")) == (0o700, 0o600)


def test_a_folder_with_other_things_in_it_is_left_as_it_is(tmp_path):
    said = []
    (tmp_path / "thesis.tex").touch()
    os.chmod(tmp_path, 0o777)
    with sole_user(tmp_path, said.append):
        assert (mode(tmp_path), mode(tmp_path / "gateway.lock")) == (0o777, 0o600)
    assert "other users can write into the state folder" in said[0]


def test_a_second_gateway_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fairlead.engine.live.statefolder._LOCK_WAIT_S", 0.1)
    used = pytest.raises(ConfigError, match="in use by another gateway")
    with sole_user(tmp_path / "state", print), used, sole_user(tmp_path / "state", print):
        pass
    with sole_user(tmp_path / "state", print):
        pass


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "state").mkdir(0o700)
    (tmp_path / "state" / "gateway.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"gateway\.lock: cannot be opened"), sole_user(tmp_path / "state", print):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_lock_of_another_user_is_refused(tmp_path):
    state = tmp_path / "state"
    state.mkdir(0o700)
    (state / "gateway.lock").touch(0o600)
    os.chown(state / "gateway.lock", 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"), sole_user(state, print):
        pass
