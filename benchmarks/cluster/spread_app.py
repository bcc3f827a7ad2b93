"""Three stages that compute for a few milliseconds each, and batch: with nodes of one vCPU, one of them per node."""

import zlib
from collections import Counter
from itertools import pairwise

from fairlead import App

app = App("spread")
WORDS = ("river stone harbour anchor fairlead winch hawser bollard capstan mooring " * 40).split()


@app.function(batch=(1, 2, 4))
def pack(texts: list[str]) -> list[str]:
    """Compresses each text once per level, and gives it back with the sizes."""
    return [
        " ".join([text, *(str(len(zlib.compress((text * 12).encode(), level))) for level in (1, 6))]) for text in texts
    ]


@app.function(batch=(1, 2, 4))
def count(texts: list[str]) -> list[dict[str, int]]:
    """Counts pairs of letters."""
    found = []
    for text in texts:
        letters = text * 8
        pairs = Counter(pairwise(letters))
        found.append({"".join(pair): number for pair, number in pairs.most_common(20)})
    return found


@app.function(batch=(1, 2, 4))
def rank(counts: list[dict[str, int]]) -> list[list[str]]:
    """Ranks the pairs by how often they came, after computing a little."""
    found = []
    for each in counts:
        total = 0
        for i in range(25_000):
            total = (total * 31 + i) % 1_000_003
        found.append([*sorted(each, key=lambda pair: (-each[pair], pair)), str(total)])
    return found


app.workflow("spread", pack >> count >> rank, slo="80ms", example=" ".join(WORDS))
