"""Bayesian optimisation of a choice from finite sets, with a constraint and noisy observations. Pure functions.

Two independent Gaussian processes model the objective and the constraint; the next points are those with the highest
noisy expected improvement among those that are likely to be feasible (Letham, Karrer, Ottoni, Bakshy: Constrained
Bayesian Optimization with Noisy Experiments, Bayesian Analysis 14, 2019).
"""

from fairlead.planning.bayesian.gaussian_process import GaussianProcess, fit, matern52
from fairlead.planning.bayesian.improvement import NoisyImprovement
from fairlead.planning.bayesian.kernels import expected_improvement
from fairlead.planning.bayesian.optimise import Effort, Observation, Outcome, optimise
from fairlead.planning.bayesian.space import Choice, Space

__all__ = [
    "Choice",
    "Effort",
    "GaussianProcess",
    "NoisyImprovement",
    "Observation",
    "Outcome",
    "Space",
    "expected_improvement",
    "fit",
    "matern52",
    "optimise",
]
