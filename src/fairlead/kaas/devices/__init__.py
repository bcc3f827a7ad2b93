"""Devices that run kernels: NumPy (reference), OpenCL and CUDA, behind one small contract."""

from fairlead.kaas.devices.base import Allocation, Device, MemoryInfo, Program, open_device

__all__ = ["Allocation", "Device", "MemoryInfo", "Program", "open_device"]
