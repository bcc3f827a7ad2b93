"""The version of the package, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("fairlead")
except PackageNotFoundError:
    VERSION = "unknown"
