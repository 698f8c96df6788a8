"""The curves of `tinyllm-chat bench MODEL --context --json` as a picture.

tinyllm-chat bench smollm2 --context --json > curve.json
python benchmarks/context_plot.py curve.json docs/context.svg
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from html import escape
from math import ceil, log2
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 360, 260, 56, 40, 16, 44  # of one panel
INK, GRID, LINE = "#57606a", "#d0d7de", "#0969da"  # seen on white and on dark pages


@dataclass(frozen=True)
class Panel:
    """One curve over the length of the context, which is drawn by doublings."""

    title: str
    field: str
    linear: bool = False  # the length is drawn as it is


PANELS = (
    Panel("prefill, tokens/s", "prefill_tokens_per_second"),
    Panel("decode, ms a token", "decode_ms", linear=True),
)


def drawn(report: dict[str, Any]) -> str:
    """The SVG."""
    points, model = report["context"], report["model"]
    head = f"{model['name']} {model['file_type']}, {report['cache_type']} cache, {report['threads']} threads"
    panels = [panel_svg(panel, points, number * WIDTH) for number, panel in enumerate(PANELS)]
    width, height = WIDTH * len(PANELS), HEIGHT + TOP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            f'  font-family="sans-serif" font-size="11" fill="{INK}">',
            f'<text x="{LEFT}" y="18" font-size="12">{escape(head)}</text>',
            *panels,
            "</svg>\n",
        ]
    )


def panel_svg(panel: Panel, points: list[dict[str, float]], offset: int) -> str:
    tokens, values = [point["tokens"] for point in points], [point[panel.field] for point in points]
    left, right, low, high = offset + LEFT, offset + WIDTH - RIGHT, TOP + HEIGHT - BOTTOM, TOP + 20
    step = nice_step(max(values))
    top = step * ceil(max(values) / step)

    def x(count: float) -> float:
        if panel.linear:
            return left + (right - left) * count / max(tokens)
        return left + (right - left) * log2(count / min(tokens)) / max(1.0, log2(max(tokens) / min(tokens)))

    def y(value: float) -> float:
        return low - (low - high) * value / top

    lines = [f'<text x="{left}" y="{high - 8}">{escape(panel.title)}</text>']
    for number in range(round(top / step) + 1):
        value = number * step
        lines.append(f'<line x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{GRID}"/>')
        lines.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for count in tokens if not panel.linear else [count for count in tokens if 8 * count >= max(tokens)]:
        lines.append(f'<text x="{x(count):.1f}" y="{low + 16}" text-anchor="middle">{count}</text>')
    lines.append(f'<text x="{(left + right) / 2:.1f}" y="{low + 34}" text-anchor="middle">tokens of context</text>')
    places = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in zip(tokens, values, strict=True))
    lines.append(f'<polyline points="{places}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    lines += [
        f'<circle cx="{place.split(",")[0]}" cy="{place.split(",")[1]}" r="3" fill="{LINE}"/>'
        for place in places.split()
    ]
    return "\n".join(lines)


def nice_step(top: float) -> float:
    """1, 2 or 5 times a power of ten, of which four to nine reach the top."""
    power = 10.0 ** (len(str(int(top))) - 2) if top >= 1 else 0.1
    return next(power * factor for factor in (1, 2, 5, 10, 20, 50) if top / (power * factor) <= 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    arguments.picture.write_text(drawn(json.loads(arguments.report.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
