"""The options about devices for kernels."""

from collections.abc import Sequence

from fairlead.app.function import device_names
from fairlead.app.units import bytes_of
from fairlead.cli.errors import UsageError


def chosen_devices(names: Sequence[str]) -> tuple[str, ...]:
    """The devices that `--device` names."""
    try:
        return device_names(names, "--device")
    except ValueError as error:
        raise UsageError(str(error)) from error


def chosen_size(text: str | None, option: str) -> int:
    """The bytes that an option gives; 0 where it was not given."""
    if text is None:
        return 0
    found = bytes_of(text)
    if not found:
        raise UsageError(f"{option} must be a size, such as 64MB; got {text!r}.")
    return found
