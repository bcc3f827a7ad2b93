"""Secrets that Fairlead takes from its environment, and how they are kept from the code of apps."""

import ctypes
import os
import sys

TOKEN = "FAIRLEAD_TOKEN"
"""The variable that holds the token which clients of a gateway send."""

CALLBACK_SECRET = "FAIRLEAD_CALLBACK_SECRET"
"""The variable that holds the key with which callbacks are signed."""

AGENT_TOKEN = "FAIRLEAD_AGENT_TOKEN"
"""The variable that holds the token by which a gateway and its agents know each other."""

VALUES_KEY_ID = "FAIRLEAD_VALUES_ACCESS_KEY_ID"
"""The variable that names the access key of the object store for values."""

VALUES_KEY = "FAIRLEAD_VALUES_SECRET_ACCESS_KEY"
"""The variable that holds the secret of that access key."""

VALUES_SESSION = "FAIRLEAD_VALUES_SESSION_TOKEN"
"""The variable that holds the token of a temporary access key."""

SECRETS = (TOKEN, CALLBACK_SECRET, AGENT_TOKEN, VALUES_KEY_ID, VALUES_KEY, VALUES_SESSION)

_PR_SET_DUMPABLE = 4


def public_environment() -> dict[str, str]:
    """This process's environment without secrets: what a process that runs the code of an app gets."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def take_secrets() -> dict[str, str]:
    """The secrets of this process's environment, which has them no more.

    The kernel shows the environment with which a process began in `/proc/PID/environ`, so the values are overwritten
    there too. From then on only root can look into this process's memory or trace it; it also leaves no core dump.
    """
    found = {name: os.environ[name] for name in SECRETS if name in os.environ}
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        library.getenv.restype = ctypes.c_void_p
        for name, value in found.items():
            place = library.getenv(name.encode())
            if place:
                ctypes.memset(place, ord("x"), len(os.fsencode(value)))
        library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for name in found:
        del os.environ[name]
    return found
