"""A neural network as a stage of an app: a graph of kernels, which `fairlead serve` runs on an OpenCL or CUDA device.

Called in Python, as at the end, it runs on NumPy. To serve it: `fairlead serve examples/15_kernels.py`.
"""

from fairlead import App
from fairlead.kaas.graphs import digits

app = App("reader")
network = digits()  # kernels in OpenCL and CUDA, and trained weights; yours can be a file, see `fairlead kaas`


@app.function
def prepare(drawing):
    """8 lines of 8 signs as the numbers that the network takes: 0 for paper, 16 for ink."""
    return [[0.0 if sign == "." else 16.0 for sign in line] for line in drawing]


read = app.kernel("read", network.graph, network.constants)


@app.function
def label(scores):
    """The most likely digit."""
    (row,) = scores
    return {"digit": int(row.argmax()), "score": round(float(row.max()), 3)}


SEVEN = ["########", "########", ".....##.", "....##..", "...##...", "..##....", "..##....", "..##...."]

# prepare ---> read, on a device ---> label
scan = app.workflow("scan", prepare >> read >> label, slo="200ms", example=SEVEN)

if __name__ == "__main__":
    print("\n".join(SEVEN))
    print(scan(SEVEN))
