"""How long a kernel's buffers take to and from a device."""

from fairlead.model import Device

_MB_PER_GB = 1024


def load_s(device: Device, load_mb: float, starts_executor: bool = False) -> float:
    """Until a kernel can run on a device: its executor started, its constants allocated and copied there."""
    seconds = device.executor_start_s if starts_executor else 0.0
    return seconds + device.allocation_s + copy_s(device, load_mb) if load_mb else seconds


def copy_s(device: Device, size_mb: float) -> float:
    """So much between host and device, either way."""
    return size_mb / (_MB_PER_GB * device.load_gb_per_s)
