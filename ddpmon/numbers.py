"""Formats numbers for screens and pages. A missing one is "–"; nan and inf are shown and never raise an error."""

from __future__ import annotations

import math
import os
import time

NONE = "–"
KILO = 1000 if os.environ.get("DDPMON_UNITS") == "decimal" else 1024
"""Factor between units of memory and traffic. A process reads the setting once, when it starts."""
_SIZES = {1000: ("kB", "MB", "GB", "TB"), 1024: ("KiB", "MiB", "GiB", "TiB")}
_, MEGA, GIGA, _ = _SIZES[KILO]
"""Units of numbers whose heading names the unit."""


def _special(value: float | None) -> str | None:
    if value is None:
        return NONE
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None


def ms(value: float | None) -> str:
    """Format milliseconds in at most five characters: 4.23, 41.2, 314, 12345, 2e+06."""
    if (special := _special(value)) is not None or value is None:
        return special or NONE
    size = abs(value)
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if size < 99_999.5 else f"{value:.0e}"


def aligned_ms(value: float | None, digits: int) -> str:
    """Format milliseconds with `digits` decimals, so that numbers align in a column."""
    if (special := _special(value)) is not None or value is None:
        return special or NONE
    return f"{value:.{digits}f}" if abs(value) < 99_999.5 else f"{value:.0e}"


def loss(value: float | None) -> str:
    """Format a loss in at most six characters: 2.296, 0.0123, 123.5, 1.2e-5."""
    if (special := _special(value)) is not None or value is None:
        return special or NONE
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001 or size >= 99_999.5:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa if abs(int(exponent)) < 10 else round(float(mantissa))}e{int(exponent)}"
    if size < 0.1:
        return f"{value:.4f}"
    return f"{value:.{3 if size < 9.9995 else 2 if size < 99.995 else 1 if size < 999.95 else 0}f}"


def count(value: int) -> str:
    """Format a count with a thousands separator: 12,486."""
    return f"{value:,}"


def short(value: float | None, kilo: int = 1000) -> str:
    """Format a quantity in at most five characters: 942, 12.3k, 1.31M. `kilo` is the factor between suffixes."""
    if (special := _special(value)) is not None or value is None:
        return special or NONE
    size = abs(value)
    for exponent, unit in enumerate(("", "k", "M", "G", "T")):
        factor = float(kilo**exponent)
        scaled = value / factor
        if size < 999.5 * factor:
            digits = (
                0 if abs(scaled) >= 99.95 or (not unit and scaled.is_integer()) else 1 if abs(scaled) >= 9.995 else 2
            )
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:.0e}"


def percent(fraction: float | None) -> str:
    """Format a fraction in whole percent: 14%."""
    if (special := _special(fraction)) is not None or fraction is None:
        return special or NONE
    return f"{100 * fraction:.0f}%" if abs(fraction) < 99.99 else ">999%"


def over(fraction: float | None) -> str:
    """Format the relative difference of two values as a signed percentage: +17.4%, -0.3%."""
    if (special := _special(fraction)) is not None or fraction is None:
        return special or NONE
    return f"{100 * fraction:+.1f}%" if abs(fraction) < 9.995 else f"x{fraction + 1:.0f}" if fraction < 1e4 else ">x999"


def gigabytes(size_bytes: float | None) -> str:
    """Format a number of bytes in GiB, or in GB, without the unit: 0.42, 61.0."""
    return ms(None if size_bytes is None else size_bytes / KILO**3)


def bytes_per_s(value: float | None) -> str:
    """Format bytes a second in at most five characters: 942, 12.3k, 1.31M."""
    return short(value, KILO)


def size(size_bytes: float, kilo: int = KILO) -> str:
    """Format a number of bytes with its unit: 612 bytes, 3.4 KiB, 25.0 MiB, 120 GiB."""
    if not math.isfinite(size_bytes) or abs(size_bytes) < kilo:
        return f"{size_bytes:.0f} bytes"
    scaled, unit = size_bytes / kilo, ""
    for unit in _SIZES[kilo]:
        if abs(scaled) < 999.5 or unit == _SIZES[kilo][-1]:
            break
        scaled /= kilo
    return f"{scaled:.1f} {unit}" if abs(scaled) < 99.95 else f"{scaled:,.0f} {unit}"


def disk_size(size_bytes: float) -> str:
    """Format a size on a disk, in powers of ten as disks and the limits of the config file are: 12.0 MB."""
    return size(size_bytes, 1000)


def duration(seconds: float | None) -> str:
    """Format a duration by its two largest units: 14s, 2m14s, 3h14m, 2d03h."""
    if (special := _special(seconds)) is not None or seconds is None:
        return special or NONE
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    days = whole // 86_400
    return f"{days}d{whole % 86_400 // 3600:02}h" if days < 100 else f"{days}d" if days < 10_000 else ">9999d"


def span(seconds: float | None) -> str:
    """Format the time range of a chart: 40 s, 15 min, 3.5 h."""
    if (special := _special(seconds)) is not None or seconds is None:
        return special or NONE
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(at: float) -> str:
    """Format Unix time as the local time of day: 14:02:31."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"
