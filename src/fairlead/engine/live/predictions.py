"""The prediction caches of one app: looked up when an invocation becomes ready, filled when one has run.

Equal means equal bytes: an input is known by a digest of what its instance would have been given. Equal inputs that
become ready before the first of them has run are run like any others; those that still wait when one of them is done
are answered with it (*joined*).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from fairlead.app.manifest import Manifest
from fairlead.engine.core import events as ev
from fairlead.engine.live.cache import ENTRY_BYTES, Cache, Entry, Key
from fairlead.engine.live.contracts import Values
from fairlead.engine.live.status import CacheStatus
from fairlead.engine.live.store import is_cheap
from fairlead.engine.live.transit import Batch, Transit
from fairlead.engine.live.values import LostValueError, Result, Value, array_head
from fairlead.model import Invocation

MOST_INPUT_BYTES = 1 << 20
"""Larger inputs are not looked up: a digest of this size holds the event loop for about a millisecond."""

Place = tuple[str, int]  # stage and item


class Digest(Protocol):
    """A digest in the making."""

    def update(self, data: bytes, /) -> None:
        """Take in bytes."""
        ...


def predictions_of(manifest: Manifest, transit: Transit, values: Values) -> "Predictions | None":
    """The caches that an app asks for; None if it asks for none."""
    caches = {
        spec.name: Cache(spec.cache_entries, spec.cache_bytes, values.release)
        for spec in manifest.functions
        if spec.cache_entries
    }
    return Predictions(manifest, caches, transit, values) if caches else None


class Predictions:
    """Answers invocations with what their functions gave for equal inputs.

    An answer holds for a function wherever it is used. If what follows depends on it (a branch, a map), the instance
    worked that out for one stage, so it holds for that stage only; so it does where parameters are bound to it.

    Args:
        manifest: The app.
        caches: By function.
        transit: The open requests: where inputs come from, and answers go.
        values: Where data lies.
    """

    def __init__(self, manifest: Manifest, caches: Mapping[str, Cache], transit: Transit, values: Values) -> None:
        self._caches = caches
        self._transit = transit
        self._values = values
        self._scopes = {
            (workflow.name, stage.name): f"{workflow.name}/{stage.name}"
            if stage.splits or stage.chooses or stage.using
            else f"/{stage.function}"
            for workflow in manifest.workflows
            for stage in workflow.stages
        }
        self._keys: dict[int, dict[Place, Key]] = {}  # of what waits or runs, by request
        self._alike: dict[Key, dict[Invocation, None]] = {}  # invocations that were looked up in vain
        self._due: list[tuple[Invocation, Key]] = []  # those of them whose answer has come since

    def recall(self, ready: Iterable[Invocation], waiting: Container[Invocation], now: float) -> list[ev.Recalled]:
        """Answers to what has just become ready, and to what waited for an equal input; only to what is `waiting`."""
        found = self._join(waiting, now) if self._due else []
        for invocation in ready:
            cache = self._caches.get(invocation.function)
            if cache is None or invocation not in waiting:
                continue
            key = self._key(invocation)
            if key is None:
                cache.skipped += 1
                continue
            event = self._answer(invocation, cache, key, now)
            if event is not None:
                cache.hits += 1
                found.append(event)
                continue
            cache.misses += 1
            self._keys.setdefault(invocation.request, {})[invocation.stage, invocation.item] = key
            self._alike.setdefault(key, {})[invocation] = None
        return found

    def finished(self, batch: Batch, results: Sequence[Result], outcomes: Sequence[ev.Outcome]) -> None:
        """Keep what a batch gave; never an error."""
        function = batch.effect.function
        cache = self._caches.get(function)
        if cache is None or len(results) != len(batch.members):
            return
        for place, result in zip(batch.members, results, strict=True):
            invocation = batch.effect.invocations[place]
            key = self._keys.get(invocation.request, {}).pop((invocation.stage, invocation.item), None)
            if key is None:
                continue
            alike = self._alike.get(key, {})
            alike.pop(invocation, None)
            if outcomes[place].ok and result.ok and self._keep(cache, key, result):
                self._due += [(other, key) for other in self._alike.pop(key, {})]
            elif not alike:
                self._alike.pop(key, None)

    def forget(self, request: int) -> None:
        """A request has ended."""
        for place, key in self._keys.pop(request, {}).items():
            alike = self._alike.get(key, {})
            for other in [other for other in alike if (other.request, (other.stage, other.item)) == (request, place)]:
                del alike[other]
            if not alike:
                self._alike.pop(key, None)

    def close(self) -> None:
        """Let go of all answers."""
        for cache in self._caches.values():
            cache.clear()

    def status(self) -> dict[str, CacheStatus]:
        """How each cache stands, by function."""
        return {name: cache.status() for name, cache in self._caches.items()}

    def _join(self, waiting: Container[Invocation], now: float) -> list[ev.Recalled]:
        due, self._due = self._due, []
        found = []
        for invocation, key in due:
            cache = self._caches[invocation.function]
            event = self._answer(invocation, cache, key, now) if invocation in waiting else None
            if event is not None:
                cache.joined += 1
                found.append(event)
        return found

    def _answer(self, invocation: Invocation, cache: Cache, key: Key, now: float) -> ev.Recalled | None:
        """Give an invocation what the cache has for it; None if that is nothing."""
        entry = cache.find(key)
        if entry is None:
            return None
        value = self._values.copy(entry.value)
        if value is None:  # its file was lost
            cache.drop(key)
            return None
        outcome = self._transit.recall(invocation, Result(True, value, entry.arm, entry.items), now)
        return ev.Recalled(invocation.request, invocation.stage, invocation.item, outcome)

    def _keep(self, cache: Cache, key: Key, result: Result) -> bool:
        size_bytes = self._values.size_bytes(result.value)
        value = self._values.copy(result.value) if cache.fits(size_bytes) else None
        if value is None:  # too large, or on another node
            cache.skipped += 1
            return False
        cache.keep(key, Entry(value, result.arm, result.items, size_bytes + ENTRY_BYTES))
        return True

    def _key(self, invocation: Invocation) -> Key | None:
        """What an input is known by; None if it is too large, or cannot be read at once."""
        value = self._transit.argument(invocation)
        if self._values.size_bytes(value) > MOST_INPUT_BYTES or not is_cheap(value):
            return None
        digest = blake2b(digest_size=32)
        try:
            self._digest(value, digest)
        except LostValueError:
            return None
        return self._scopes[invocation.workflow, invocation.stage], digest.digest()

    def _digest(self, value: Value, digest: Digest) -> None:
        """Take in the bytes of a value: the same ones wherever it or its parts are kept."""
        if isinstance(value, list | tuple):
            digest.update(array_head(len(value)))
            for part in value:
                self._digest(part, digest)
        else:
            digest.update(self._values.encoded(value))
