"""Shipped kernel graphs: a chain of matrix products, two networks and an iterative solver.

Each has sources in OpenCL and CUDA and a NumPy reference for every kernel. Sizes are parameters; weights and inputs
come from a seed, but those of `digits`, which were fitted to the digits of scikit-learn by `train_digits.py`.
"""

from fairlead.kaas.graphs.shipped import SHIPPED, Example, digits, gemm_chain, jacobi, mlp, scaling

__all__ = ["SHIPPED", "Example", "digits", "gemm_chain", "jacobi", "mlp", "scaling"]
