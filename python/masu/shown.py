"""Figures of the live page as people read them."""

from __future__ import annotations

from masu.live import TEXT, Column

UNKNOWN_THREAD = 0xFFFFFFFF


def size(bytes_: float) -> str:
    sign, bytes_ = "-" if bytes_ < 0 else "", abs(bytes_)
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor:
            return f"{sign}{bytes_ / factor:.1f} {unit}"
    return f"{sign}{bytes_:.0f} B"


def shown(value: int | str, column: Column) -> str:
    if column.unit == TEXT:
        return str(value) or "-"
    if column.is_bytes:
        return size(int(value))
    if column.name == "thread":
        return {0: "-", UNKNOWN_THREAD: "?"}.get(int(value), str(value))
    return f"{value:,}"


def heading(name: str) -> str:
    return name.replace("_", " ")
