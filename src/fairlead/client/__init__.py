"""Calls a gateway from Python: `Client` blocks, `AsyncClient` is for `async` code.

Light on purpose: a program that only calls needs nothing of the runtime.
"""

from fairlead.client.answers import Answer, RequestState
from fairlead.client.asynchronous import AsyncClient, AsyncHandle
from fairlead.client.blocking import Client, Handle
from fairlead.client.errors import (
    CallError,
    CancelledCallError,
    FailedError,
    InvalidCallError,
    LateError,
    NoAnswerError,
    RefusedError,
    UnauthorizedError,
)

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncHandle",
    "CallError",
    "CancelledCallError",
    "Client",
    "FailedError",
    "Handle",
    "InvalidCallError",
    "LateError",
    "NoAnswerError",
    "RefusedError",
    "RequestState",
    "UnauthorizedError",
]
