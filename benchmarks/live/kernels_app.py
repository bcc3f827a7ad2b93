"""The app of bench_kaas_served.py: shipped kernel graphs, each a workflow of its own."""

from fairlead import App
from fairlead.kaas.graphs import digits, jacobi, scaling

app = App("kernels")
for name, made in (("scaling", scaling()), ("digits", digits()), ("jacobi", jacobi(iterations=100))):
    app.workflow(name, app.kernel(f"{name}-kernel", made.graph, made.constants), slo="30s")
