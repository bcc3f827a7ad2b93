"""Where the executors of these tests keep values and compiled code."""

import pytest
from kaas_devices import Desk


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """One cache for the session: compiling takes seconds."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def desk(tmp_path, compiled):
    return Desk(tmp_path, compiled)
