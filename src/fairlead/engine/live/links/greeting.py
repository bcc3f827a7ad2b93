"""How two ends of a connection prove to each other that they know the token, without sending it.

The end that listens sends a random challenge. The other answers with a challenge of its own, says who it is, and proves
with an HMAC over both challenges that it knows the secret. The first end then proves the same. Every message has a
fixed size and holds no structure, so nothing of an unknown peer is ever parsed.

An agent's secret is the token. An instance runs code of users and must not have that: its secret is derived from the
token and its key, and lets it speak for itself alone.
"""

import secrets
from hashlib import sha256
from hmac import compare_digest, digest

import msgspec

from fairlead.errors import FairleadError

_PREFIX = b"FLEAD"
_VERSION = b"\x03"  # of the greeting and of all frames that follow it
_RANDOM_BYTES = 32
_HEAD = _PREFIX + _VERSION

CHALLENGE_BYTES = len(_HEAD) + _RANDOM_BYTES
ANSWER_BYTES = len(_HEAD) + 3 * 32
PROOF_BYTES = 32

REFUSAL = bytes(PROOF_BYTES)
"""Sent in the place of a proof to a peer whose own proof is wrong."""

AGENT = bytes(32)
"""The identity of whoever knows the token itself: a gateway or an agent."""


class GreetingError(FairleadError):
    """The other end does not prove that it belongs here."""


class RefusedError(GreetingError):
    """The other end says that the token is wrong."""


class Credential(msgspec.Struct, frozen=True, array_like=True):
    """Who one is, and the secret that proves it."""

    identity: bytes
    secret: bytes


def agent_credential(token: str) -> Credential:
    """The credential of an agent, or of a gateway that reads values from agents."""
    return Credential(AGENT, token.encode())


def instance_credential(token: str, key: str) -> Credential:
    """The credential of the instance with this key."""
    identity = identity_of(key)
    return Credential(identity, _secret_of(token.encode(), identity))


def identity_of(key: str) -> bytes:
    """The identity of the instance with this key."""
    return sha256(key.encode()).digest()


class Listener:
    """The listening end of one greeting. Bytes in, bytes out."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._challenge = secrets.token_bytes(_RANDOM_BYTES)
        self._heard = bytearray()
        self.identity = b""

    def challenge(self) -> bytes:
        """What is sent first."""
        return _HEAD + self._challenge

    def feed(self, data: bytes) -> bytes | None:
        """The proof to send once the answer is whole and right; None while it is not whole. Raises GreetingError."""
        if len(self._heard) + len(data) > ANSWER_BYTES:  # it has to wait for our proof before it says more
            raise GreetingError("it sent more than an answer to the challenge")
        self._heard += data
        if not _HEAD.startswith(self._heard[: len(_HEAD)]):
            raise GreetingError("it does not speak this protocol, or another version of it")
        if len(self._heard) < ANSWER_BYTES:
            return None
        theirs, identity, proof = _parts(bytes(self._heard[len(_HEAD) :]))
        secret = self._token if identity == AGENT else _secret_of(self._token, identity)
        if not compare_digest(proof, _proof(secret, b"dials", self._challenge, theirs, identity)):
            raise GreetingError("it does not know the token")
        self.identity = identity
        return _proof(secret, b"listens", self._challenge, theirs, identity)


class Dialler:
    """The dialling end of one greeting."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential
        self._random = secrets.token_bytes(_RANDOM_BYTES)
        self._theirs = b""

    def answer(self, challenge: bytes) -> bytes:
        """What to send after the challenge, of `CHALLENGE_BYTES`. Raises GreetingError."""
        if not challenge.startswith(_PREFIX):
            raise GreetingError("something else than a Fairlead gateway or agent listens there")
        if not challenge.startswith(_HEAD):
            raise GreetingError(
                f"it speaks version {challenge[len(_PREFIX)]} of the protocol and this program speaks version "
                f"{_VERSION[0]}; run the same Fairlead on both sides"
            )
        self._theirs = challenge[len(_HEAD) :]
        identity, secret = self._credential.identity, self._credential.secret
        return _HEAD + self._random + identity + _proof(secret, b"dials", self._theirs, self._random, identity)

    def check(self, proof: bytes) -> None:
        """Raise GreetingError unless this proof, of `PROOF_BYTES`, shows that the other end knows the secret too."""
        if proof == REFUSAL:
            raise RefusedError("it refused the token")
        identity, secret = self._credential.identity, self._credential.secret
        if not compare_digest(proof, _proof(secret, b"listens", self._theirs, self._random, identity)):
            raise GreetingError("whatever listens there does not know the token")


def _parts(text: bytes) -> tuple[bytes, bytes, bytes]:
    return text[:32], text[32:64], text[64:]


def _secret_of(token: bytes, identity: bytes) -> bytes:
    return digest(token, b"instance" + identity, "sha256")


def _proof(secret: bytes, end: bytes, challenge: bytes, answer: bytes, identity: bytes) -> bytes:
    return digest(secret, end + _HEAD + challenge + answer + identity, "sha256")
