"""What a served app would do at a load, by simulation with several seeds: figures with intervals, and which split."""

from fairlead.forecast.figures import Forecast, forecast
from fairlead.forecast.granularity import Cell, Comparison, compare
from fairlead.forecast.splits import Split, splits_of

__all__ = ["Cell", "Comparison", "Forecast", "Split", "compare", "forecast", "splits_of"]
