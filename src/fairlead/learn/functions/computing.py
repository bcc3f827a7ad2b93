"""Functions that compute: primes, compression, PageRank, the squiggle of a genome.

Nothing here multiplies matrices: the library behind NumPy would do that on several threads.
"""

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.functions.texts import Answer

Ranks = NDArray[np.float64]
Links = NDArray[np.int64]

_DAMPING = 0.85
_LINKS_PER_PAGE = 8
_ROUNDS = 20


def primes_below(limit: int) -> list[int]:
    """By the sieve of Eratosthenes."""
    if limit < 3:
        return []
    is_prime = bytearray([1]) * limit
    is_prime[:2] = b"\0\0"
    for i in range(2, int((limit - 1) ** 0.5) + 1):
        if is_prime[i]:
            is_prime[i * i :: i] = bytes(len(range(i * i, limit, i)))
    return [i for i, flag in enumerate(is_prime) if flag]


def primes_work(size: int) -> Answer:
    """The primes below so many thousand."""
    found = primes_below(1000 * size)
    return {"count": len(found), "last": found[-1] if found else 0}


def compression_work(size: int) -> Answer:
    """Compress so many kilobytes of a log, and unpack them."""
    lines = (f"{i:08d} {'GET' if i % 3 else 'PUT'} /goods/{i * 7919 % 10007} {200 + i % 5}\n" for i in _numbers())
    text = bytearray()
    while len(text) < 1024 * size:
        text += next(lines).encode()
    packed = zlib.compress(bytes(text), 9)
    return {"bytes": len(text), "packed": len(packed), "is_same": zlib.decompress(packed) == text}


def page_ranks(sources: Links, targets: Links, pages: int, rounds: int = _ROUNDS) -> Ranks:
    """The PageRank of each page, by power iteration; a page without links counts as one with links to all."""
    out = np.bincount(sources, minlength=pages)
    share = 1 / np.maximum(out, 1)
    has_none = out == 0
    ranks = np.full(pages, 1 / pages)
    for _ in range(rounds):
        passed = np.bincount(targets, weights=(ranks * share)[sources], minlength=pages)
        ranks = (1 - _DAMPING + _DAMPING * ranks[has_none].sum()) / pages + _DAMPING * passed
    return ranks


def pagerank_work(size: int) -> Answer:
    """Rank so many thousand pages, each with eight links that favour pages with low numbers."""
    pages = 1000 * size
    rng = np.random.default_rng(size)
    sources = np.repeat(np.arange(pages), _LINKS_PER_PAGE)
    targets = (pages * rng.random(sources.size) ** 2).astype(np.int64)
    ranks = page_ranks(sources, targets, pages)
    return {"pages": pages, "sum": float(ranks.sum()), "best": int(ranks.argmax())}


def squiggle(bases: str) -> list[tuple[float, float]]:
    """A genome as a line: each base is two strokes of half a step, A up and down, C and G by one step, T down and up.

    C goes down twice and G up twice, so that the line's height at the end is the number of G less that of C.
    """
    x = y = 0.0
    line = [(x, y)]
    for base in bases:
        first, second = _STROKES[base]
        y += first
        line.append((x + 0.5, y))
        x, y = x + 1.0, y + second
        line.append((x, y))
    return line


def dna_work(size: int) -> Answer:
    """The squiggle of so many thousand bases."""
    rng = np.random.default_rng(size)
    bases = "".join(np.array(list("ACGT"))[rng.integers(0, 4, 1000 * size)].tolist())
    line = squiggle(bases)
    heights = [y for _, y in line]
    return {"points": len(line), "end": heights[-1], "top": max(heights), "bottom": min(heights)}


_STROKES = {"A": (0.5, -0.5), "C": (-0.5, -0.5), "G": (0.5, 0.5), "T": (-0.5, 0.5)}


def _numbers() -> Iterator[int]:
    i = 0
    while True:
        yield i
        i += 1
