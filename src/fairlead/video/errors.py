"""What can go wrong with the video workflow; each message names what mends it.

FairleadError
├── WeightsError            weights are missing, damaged, or cannot be had
├── UnreadableVideoError    what was given is no video that can be read, or may not be
└── StoreError              the object store refuses what is to be kept
"""

from fairlead.errors import FairleadError


class WeightsError(FairleadError):
    """Weights, or the clip made beside them, are missing or damaged, or cannot be had."""


class UnreadableVideoError(FairleadError):
    """What was given is no video that can be read."""


class StoreError(FairleadError):
    """An object store refuses what is to be kept."""
