"""A plot of what grows with the number of chunks: time of a search, memory, file per chunk. Plain SVG, no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, GAP = 300, 190, 46
TOP, LEFT = 34, 52
COLORS = ["#0b6e99", "#c2571a", "#4f7a28"]


def draw_growth(rows: Sequence[dict[str, Any]]) -> str:
    """Three panels over the chunks (logarithmic) from the rows that `search_speed.py` writes."""
    rows = sorted(rows, key=lambda row: row["size"])
    sizes = [row["size"] for row in rows]
    panels = [
        (
            "search, milliseconds (p50)",
            {
                "question": [row["sentence"]["p50"] for row in rows],
                "by meaning": [row["semantic"]["p50"] for row in rows],
                "by word": [row["keyword"]["p50"] for row in rows],
            },
        ),
        ("memory, MB", {"resident": [row["rss_mb"] for row in rows]}),
        ("file, bytes a chunk", {"file": [row["file_mb"] * 1e6 / row["size"] for row in rows]}),
    ]
    width = len(panels) * (WIDTH + GAP) + GAP
    drawn = "".join(
        f'<g transform="translate({GAP + number * (WIDTH + GAP)},0)">{_panel(title, sizes, series)}</g>'
        for number, (title, series) in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + TOP + 50}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{drawn}</svg>\n'
    )


def _panel(title: str, sizes: Sequence[int], series: dict[str, list[float]]) -> str:
    top = _round_up(max(value for values in series.values() for value in values))
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT) * ((math.log10(size) - low) / (high - low) if high > low else 0.5)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - value / top)

    parts = [f'<text x="{LEFT}" y="20" font-weight="bold">{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{LEFT} {y(top * share):.1f}H{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(top * share) + 4:.1f}" text-anchor="end">{top * share:g}</text>')
    parts += [
        f'<text x="{x(size):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{_short(size)}</text>' for size in sizes
    ]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">chunks</text>')
    for colour, values in zip(COLORS, series.values(), strict=False):
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in zip(sizes, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'
            for size, value in zip(sizes, values, strict=True)
        ]
    if len(series) > 1:
        parts += [
            f'<text x="{LEFT + 8}" y="{TOP + 14 + 15 * line}" fill="{colour}">{name}</text>'
            for line, (colour, name) in enumerate(zip(COLORS, series, strict=False))
        ]
    return "".join(parts)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4 or 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def _short(size: int) -> str:
    return f"{size // 1_000_000}M" if size >= 1_000_000 else f"{size // 1000}k" if size >= 1000 else str(size)
