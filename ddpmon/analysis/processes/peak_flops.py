"""Peak performance of GPUs, to compute the model FLOPs utilization (MFU)."""

from __future__ import annotations

_TFLOPS = (("H100 PCIe", 756), ("H100 NVL", 835), ("H100", 989), ("H200 NVL", 835), ("H200", 989), ("A100", 312))
"""TFLOP/s by part of the device name, the first match: dense BF16 matrix products, from NVIDIA's data sheets."""


def peak_flops(device_name: str) -> float | None:
    """Return the peak FLOP/s of a GPU by the name of the device; None if it is unknown."""
    return next((tflops * 1e12 for name, tflops in _TFLOPS if name in device_name), None)
