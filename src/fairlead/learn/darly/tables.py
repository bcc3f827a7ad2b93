"""What was measured on the cluster of Darly, as its authors plotted it: seconds from call to last result.

D. Giagkos et al., "Darly: Deep Reinforcement Learning for QoS-aware scheduling under resource heterogeneity", and D.
Giagkos's diploma thesis (NTUA, 2022). The figures show bars without numbers; these are the numbers behind figures 4.8
to 4.19, from the plot scripts of the author's public repository.
"""

from collections.abc import Mapping

NODES = ("w01", "w02", "w03", "w04")
FRAMES = (7, 16, 32, 65)
PRESSURES = (0.0, 0.1, 0.5, 0.8)
WORKERS = (1, 2, 4, 8, 16)

ONE_NODE: Mapping[str, Mapping[float, tuple[float, ...]]] = {
    "w01": {
        0.0: (23.4, 32.09, 46.96, 79.9),
        0.1: (22.3, 32.62, 50.56, 84.51),
        0.5: (24.82, 33.65, 51.36, 85.12),
        0.8: (45.39, 56.18, 76.37, 117.97),
    },
    "w02": {
        0.0: (25.71, 34.37, 51.27, 86.35),
        0.1: (26.66, 35.36, 51.6, 84.2),
        0.5: (29.33, 38.65, 55.36, 87.28),
        0.8: (50.04, 63.19, 83.67, 128.33),
    },
    "w03": {
        0.0: (33.71, 40.66, 57.23, 90.59),
        0.1: (33.71, 40.66, 57.23, 90.59),
        0.5: (38.7, 48.38, 67.79, 103.48),
        0.8: (51.29, 62.38, 84.59, 129.84),
    },
    "w04": {
        0.0: (48.85, 57.27, 78.57, 117.1),
        0.1: (51.6, 63.8, 85.14, 127.51),
        0.5: (67.7, 80.55, 106.04, 153.45),
        0.8: (100.57, 118.91, 151.19, 218.5),
    },
}
"""Version 1 (five functions) on one node with one queue-worker, by pressure, for each number of frames."""

MONOLITH: Mapping[str, Mapping[float, tuple[float, ...]]] = {
    "w01": {
        0.0: (17.18, 21.3, 28.64, 42.08),
        0.1: (17.78, 21.27, 28.62, 42.29),
        0.5: (19.72, 23.32, 31.01, 45.78),
        0.8: (38.88, 43.6, 54.39, 75.17),
    },
    "w02": {
        0.0: (21.43, 25.29, 35.23, 52.14),
        0.1: (21.11, 25.18, 34.36, 51.53),
        0.5: (24.98, 28.91, 37.98, 54.61),
        0.8: (51.36, 53.29, 65.47, 100.61),
    },
    "w03": {
        0.0: (28.46, 32.31, 41.24, 60.19),
        0.1: (29.43, 34.6, 44.31, 64.6),
        0.5: (33.83, 39.7, 50.66, 73.0),
        0.8: (47.33, 55.13, 69.17, 95.2),
    },
    "w04": {
        0.0: (44.01, 50.71, 64.47, 89.02),
        0.1: (46.26, 52.62, 67.8, 96.87),
        0.5: (62.28, 71.69, 89.09, 119.8),
        0.8: (96.11, 106.72, 131.6, 176.37),
    },
}
"""Version 4 (one function, and the uploader), likewise."""

QUEUE_WORKERS: Mapping[tuple[str, str, str], Mapping[int, tuple[float, ...]]] = {
    ("w01", "w01", "w01"): {
        7: (22.46, 19.05, 17.85, 17.17, 16.42),
        16: (30.34, 23.83, 20.01, 19.42, 18.56),
        32: (45.31, 32.62, 26.32, 24.51, 23.31),
        65: (80.09, 49.86, 37.41, 34.41, 31.97),
    },
    ("w02", "w02", "w02"): {
        7: (25.29, 23.15, 21.18, 20.25, 20.23),
        16: (34.90, 28.89, 23.52, 24.59, 22.52),
        32: (50.29, 35.58, 30.43, 29.33, 27.05),
        65: (83.85, 59.59, 43.76, 37.32, 36.92),
    },
    ("w03", "w03", "w03"): {
        7: (33.67, 29.31, 27.65, 27.29, 27.51),
        16: (40.98, 34.92, 31.04, 30.44, 29.45),
        32: (56.76, 44.0, 36.3, 35.28, 34.48),
        65: (90.05, 62.78, 50.18, 46.26, 44.16),
    },
    ("w01", "w02", "w02"): {
        7: (22.67, 20.01, 18.34, 17.01, 17.51),
        16: (31.13, 25.13, 20.80, 19.80, 18.80),
        32: (47.28, 33.95, 26.12, 23.62, 23.62),
        65: (79.49, 51.33, 36.83, 33.34, 32.3),
    },
    ("w01", "w02", "w03"): {
        7: (25.98, 21.98, 20.98, 20.68, 20.7),
        16: (32.66, 27.0, 23.0, 22.0, 22.0),
        32: (49.37, 35.37, 29.87, 28.37, 27.87),
        65: (82.82, 55.32, 43.82, 39.82, 36.1),
    },
}
"""Version 1 without pressure, with the framer, the detector and the rest on these nodes, by frames and workers."""

FAAS_FLOW: Mapping[int, tuple[float, ...]] = {
    7: (15.0, 15.2, 16.3, 15.0),
    16: (20.0, 20.3, 20.15, 15.4),
    32: (28.3, 28.3, 27.8, 22.4),
    65: (66.5, 67.2, 58.3, 46.0),
}
"""Versions 1 to 4 under the runtime faas-flow on w01, by frames."""

DETECTOR_STAGE: Mapping[int, float] = {1: 52.0, 2: 26.0, 4: 13.0, 8: 7.0, 16: 7.0}
"""The detector by itself over 65 frames, called asynchronously, by queue-workers; one by one it takes 14.2 s."""

FACES: Mapping[int, int] = {7: 2, 16: 4, 32: 12, 65: 23}
"""Frames with a face, of so many: the authors' fixed lists."""
