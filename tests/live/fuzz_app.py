"""The app that the fuzzer attacks: cheap functions without an SLO, so that 500, 502 and 504 are always faults.

`marker` must never run: the fuzzer hides calls of it in bodies, headers and trailers of other requests.
"""

from pathlib import Path

from fairlead.app import App, each

app = App("fuzz")


@app.function(batch=(1, 2, 4, 8, 16, 32))
def same(values):
    return values


@app.function
def one(value):
    return value


@app.function
def mark(value):
    with Path(__file__).with_name("marked.txt").open("a") as file:
        file.write("x")
    return value


app.workflow("same", same)
app.workflow("chain", same >> one)
app.workflow("map", each(same))
app.workflow("marker", mark)
