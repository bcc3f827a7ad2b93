"""Configuration search: one option for each of several stages, the cheapest that are together within a time."""

from fairlead.planning.search.recall import Recall
from fairlead.planning.search.run import METHODS, Method, Search, top_paths
from fairlead.planning.search.values import Found, Path

__all__ = ["METHODS", "Found", "Method", "Path", "Recall", "Search", "top_paths"]
