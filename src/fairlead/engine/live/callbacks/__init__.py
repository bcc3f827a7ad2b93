"""Callbacks: the ending of an asynchronous request is posted to a URL that the operator allows."""

from fairlead.engine.live.callbacks.allowed import AllowList, CallbackRefusedError, Target, parse_url
from fairlead.engine.live.callbacks.courier import Courier, CourierStats, callback_body
from fairlead.engine.live.callbacks.post import SIGNATURE_HEADER, is_signed, sign

__all__ = [
    "SIGNATURE_HEADER",
    "AllowList",
    "CallbackRefusedError",
    "Courier",
    "CourierStats",
    "Target",
    "callback_body",
    "is_signed",
    "parse_url",
    "sign",
]
