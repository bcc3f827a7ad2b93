"""Where the tests take the weights of the video workflow from, and how random examples are drawn.

The weights are in a folder of the checkout, filled once: `make test` fills it before; whoever runs pytest himself has
it filled by the first test that needs it.
"""

import os
import signal
import sys
from pathlib import Path
from subprocess import run

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("FAIRLEAD_MODELS", str(ROOT / "build" / "models"))
# Beside a busy program an example takes as long as it takes: that is no failure.
settings.register_profile("any-load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-load")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell gives it to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def weights():
    """The folder of the weights. A test that needs them fails where they cannot be had."""
    done = run(
        [sys.executable, "-m", "fairlead.cli", "models", "pull", "--no-clip"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(os.environ["FAIRLEAD_MODELS"])


def pytest_collection_modifyitems(items):
    for item in items:
        if "12_video_workflow" in item.name:  # the example needs them too
            item.fixturenames.insert(0, "weights")
