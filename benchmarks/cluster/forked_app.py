"""A map and a fork, with stages that compute, wait, or do both."""

from time import sleep

from fairlead import App, each, fork

app = App("forked")


@app.function(batch=(1, 2, 4))
def split(texts: list[str]) -> list[list[str]]:
    """Computes for about a millisecond, and gives each text's thirds."""
    found = []
    for text in texts:
        total = 0
        for i in range(12_000):
            total = (total * 31 + i) % 1_000_003
        third = max(1, len(text) // 3)
        found.append([text[:third], text[third : 2 * third], text[2 * third :] + str(total)])
    return found


@app.function(batch=(1, 2, 4, 8))
def embed(parts: list[str]) -> list[int]:
    """Waits as for an accelerator: 3 ms, and half a one for each part."""
    sleep(0.003 + 0.0005 * len(parts))
    return [len(part) for part in parts]


@app.function(batch=(1, 2, 4, 8))
def lookup(sizes: list[list[int]]) -> list[int]:
    """Waits for 5 ms, as for a store, and computes a little for each."""
    sleep(0.005)
    return [sum(sum(each) * i % 7 for i in range(2_000)) for each in sizes]


@app.function(batch=(1, 2, 4))
def score(sizes: list[list[int]]) -> list[int]:
    """Computes for about two milliseconds."""
    found = []
    for each_size in sizes:
        total = sum(each_size)
        for i in range(25_000):
            total = (total * 17 + i) % 999_983
        found.append(total)
    return found


app.workflow("forked", split >> each(embed, items=(3, 3)) >> fork(lookup, score), slo="100ms", example="abcdefghi" * 40)
