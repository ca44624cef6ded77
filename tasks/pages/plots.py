"""Plots as inline SVG: no library, no request, colours from the page's CSS, so that they follow light and dark.

A series has a colour class `c-<name>` (c-base, c-sft, c-prefer, c-rl, else c-other); axes use the text colour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tasks.text import escape

Points = tuple[Sequence[float], Sequence[float]]


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`, near `about` of them."""
    span = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(span))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def label(x: float) -> str:
    """A tick's number, short: 12k, 0.25, 1e-05."""
    if x and abs(x) < 1e-3:
        return f"{x:.0e}".replace("e-0", "e-")
    return f"{x / 1000:g}k" if abs(x) >= 10_000 else f"{x:g}"


def smooth(y: np.ndarray, window: int) -> np.ndarray:
    """Centred moving average whose window shrinks at both ends."""
    if window < 2:
        return y
    sums = np.cumsum(np.concatenate([[0.0], y]))
    at = np.arange(len(y))
    half = np.minimum(np.minimum(at, len(y) - 1 - at), window // 2)
    return (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)


def lines(series: Mapping[str, Points], *, x: str, y: str, width: int = 330, height: int = 200) -> str:
    """Curves with axis labels. A curve of more than 60 points is drawn faint, with its moving average (a 25th of its
    length) on top."""
    found = {name: _finite(points) for name, points in series.items()}
    found = {name: p for name, p in found.items() if len(p[0])}
    if not found:
        return ""
    xs, ys = np.concatenate([p[0] for p in found.values()]), np.concatenate([p[1] for p in found.values()])
    px, py, out = _axes(xs, ys, x, y, width, height)
    for name, (a, b) in found.items():
        window = len(b) // 25 if len(b) > 60 else 1
        if window > 1:
            out.append(_path(px(a), py(b), f"line faint c-{name}"))
        out.append(
            _path(px(a), py(smooth(b, window)), f"line c-{name}")
            if len(a) > 1
            else f'<circle class="c-{name}" cx="{px(a[0]):.1f}" cy="{py(b[0]):.1f}" r="3"/>'
        )
    title = escape(f"{y} over {x}: {', '.join(f'{n} ends at {b[-1]:.4g}' for n, (_, b) in found.items())}")
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}"><title>{title}</title>{"".join(out)}</svg>'


def bands(
    series: Mapping[str, tuple[str, Sequence[float], Sequence[float], Sequence[float] | None, Sequence[float] | None]],
    *,
    x: str,
    y: str,
    width: int = 330,
    height: int = 200,
) -> str:
    """Curves with intervals: name -> (colour class, x, mean, low, high); low and high are None where there is no
    interval."""
    if not series:
        return ""
    xs = np.concatenate([np.asarray(p[1], dtype=np.float64) for p in series.values()])
    ys = np.concatenate([np.asarray(v, dtype=np.float64) for p in series.values() for v in p[2:] if v is not None])
    px, py, out = _axes(xs, ys, x, y, width, height)
    said = []
    for name, (colour, at, mean, low, high) in series.items():
        a = px(np.asarray(at, dtype=np.float64))
        if low is not None and high is not None:
            lower, upper = (_points(a, py(np.asarray(v, dtype=np.float64))) for v in (low, high))
            out.append(f'<path class="band b-{colour}" d="M{" ".join([*upper, *reversed(lower)])}Z"/>')
        out.append(_path(a, py(np.asarray(mean, dtype=np.float64)), f"line c-{colour}"))
        said.append(
            f"{name} ends at {mean[-1]:.4g}"
            + (f" ({low[-1]:.4g} to {high[-1]:.4g})" if low is not None and high is not None else "")
        )
    title = escape(f"{y} over {x}: {', '.join(said)}")
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}"><title>{title}</title>{"".join(out)}</svg>'


def standalone(svg: str, names: Mapping[str, str]) -> str:
    """A plot as a file of its own: colours inside, on white, with a legend above (series -> name)."""
    shade = {"base": "#8a93a3", "sft": "#3b73c4", "prefer": "#b8791f", "rl": "#14865a", "other": "#7a4fb5"}
    style = (
        "svg { font: 10.5px ui-sans-serif, system-ui, sans-serif; background: #fff } text { fill: #5c6577 } .name { fill: #1d2330 } "
        ".grid { stroke: #dfe3ea } .axis { stroke: #5c6577 } .line { fill: none; stroke-width: 2; stroke-linejoin: round } "
        ".faint { opacity: .28; stroke-width: 1 } "
    ) + " ".join(
        f".c-{k} {{ stroke: {v} }} circle.c-{k}, text.c-{k} {{ fill: {v}; stroke: none }}" for k, v in shade.items()
    )
    x0, legend = 56, ""
    for series, name in names.items():
        legend += f'<text class="c-{series}" x="{x0}" y="-4">{escape(name)}</text>'
        x0 += 7 * len(name) + 16
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()  # type: ignore[union-attr]
    svg = svg.replace(
        f'viewBox="0 0 {width} {height}"',
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 -18 {width} {int(height) + 18}"',
        1,
    )
    return svg.replace("</title>", f"</title><style>{style}</style>{legend}", 1) + "\n"


def whiskers(rows: Sequence[tuple[str, str, Mapping[str, float]]], *, x: str, width: int = 560, row: int = 24) -> str:
    """Dots with intervals on one axis from 0 to 1: rows of (label, series, {"mean", "low", "high"})."""
    left, right, bottom = 150, 46, 34
    height = row * len(rows) + bottom + 6
    px = lambda v: left + v * (width - left - right)  # noqa: E731
    out = []
    for t in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line class="grid" x1="{px(t):.1f}" x2="{px(t):.1f}" y1="4" y2="{height - bottom}"/>')
        out.append(f'<text x="{px(t):.1f}" y="{height - bottom + 14}" text-anchor="middle">{t:.0%}</text>')
    for i, (name, series, m) in enumerate(rows):
        at = 4 + row * (i + 0.5)
        out.append(f'<text x="{left - 10}" y="{at + 4:.1f}" text-anchor="end" class="row">{escape(name)}</text>')
        out.append(
            f'<line class="line c-{series}" x1="{px(m["low"]):.1f}" x2="{px(m["high"]):.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        out.append(f'<circle class="c-{series}" cx="{px(m["mean"]):.1f}" cy="{at:.1f}" r="4.5"/>')
        out.append(f'<text x="{width - right + 8}" y="{at + 4:.1f}">{m["mean"]:.0%}</text>')
    out.append(
        f'<text class="name" x="{(left + width - right) / 2:.0f}" y="{height - 4}" text-anchor="middle">{escape(x)}</text>'
    )
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(x)}">{"".join(out)}</svg>'


def reliability(series: Mapping[str, Sequence[Mapping[str, float]]], *, width: int = 330, height: int = 230) -> str:
    """Share right over confidence, bin by bin: series -> points {"confidence", "right", "n"}; a dot's area is its share
    of the samples."""
    left, right, top, bottom = 52, 14, 12, 36
    px = lambda v: left + v * (width - left - right)  # noqa: E731
    py = lambda v: height - bottom - v * (height - top - bottom)  # noqa: E731
    out = [
        f'<line class="axis" x1="{px(0):.1f}" y1="{py(0):.1f}" x2="{px(1):.1f}" y2="{py(1):.1f}" stroke-dasharray="4 4"/>'
    ]
    for t in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{py(t):.1f}" y2="{py(t):.1f}"/>')
        out.append(f'<text x="{left - 6}" y="{py(t) + 3.5:.1f}" text-anchor="end">{t:.0%}</text>')
        out.append(f'<text x="{px(t):.1f}" y="{height - bottom + 15}" text-anchor="middle">{t:.0%}</text>')
    for name, points in series.items():
        total = sum(p["n"] for p in points) or 1
        out += [
            f'<circle class="c-{escape(name)}" cx="{px(p["confidence"]):.1f}" cy="{py(p["right"]):.1f}" r="{2 + 9 * math.sqrt(p["n"] / total):.1f}" '
            'fill-opacity="0.75"/>'
            for p in points
        ]
    middle = (height - bottom + top) / 2
    out.append(
        f'<text class="name" x="{(left + width - right) / 2:.0f}" y="{height - 4}" text-anchor="middle">confidence</text>'
    )
    out.append(
        f'<text class="name" x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">share right</text>'
    )
    title = "share right over confidence; on the dashed line a model is as often right as it is sure"
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}"><title>{title}</title>{"".join(out)}</svg>'


Place = Callable[[np.ndarray | float], np.ndarray | float]


def _axes(xs: np.ndarray, ys: np.ndarray, x: str, y: str, width: int, height: int) -> tuple[Place, Place, list[str]]:
    """Where a value lies across and down, and the drawn grid with the names of both axes."""
    (x0, x1), (y0, y1) = _range(xs), _range(ys)
    left, right, top, bottom = 52, 10, 10, 36
    px = lambda v: left + (v - x0) / (x1 - x0) * (width - left - right)  # noqa: E731
    py = lambda v: height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom)  # noqa: E731
    out = []
    for t in ticks(y0, y1):
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{py(t):.1f}" y2="{py(t):.1f}"/>')
        out.append(f'<text x="{left - 6}" y="{py(t) + 3.5:.1f}" text-anchor="end">{label(t)}</text>')
    for t in ticks(x0, x1):
        out.append(f'<text x="{px(t):.1f}" y="{height - bottom + 15}" text-anchor="middle">{label(t)}</text>')
    out.append(f'<line class="axis" x1="{left}" x2="{width - right}" y1="{height - bottom}" y2="{height - bottom}"/>')
    out.append(
        f'<text class="name" x="{(left + width - right) / 2:.0f}" y="{height - 4}" text-anchor="middle">{escape(x)}</text>'
    )
    middle = (height - bottom + top) / 2
    out.append(
        f'<text class="name" x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">{escape(y)}</text>'
    )
    return px, py, out


def _finite(points: Points) -> tuple[np.ndarray, np.ndarray]:
    a, b = (np.asarray(v, dtype=np.float64) for v in points)
    ok = np.isfinite(a) & np.isfinite(b)
    return a[ok], b[ok]


def _range(v: np.ndarray) -> tuple[float, float]:
    """Extent of the values; a constant gets room on both sides."""
    low, high = float(v.min()), float(v.max())
    return (
        (low, high)
        if high - low > 1e-12 * max(abs(low), abs(high))
        else (low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    )


def _path(x: np.ndarray, y: np.ndarray, classes: str) -> str:
    return f'<path class="{classes}" d="M{" ".join(_points(x, y))}"/>'


def _points(x: np.ndarray, y: np.ndarray) -> list[str]:
    step = max(1, len(x) // 400)  # more points than pixels say nothing
    keep = sorted({*range(0, len(x), step), len(x) - 1})
    return [f"{x[i]:.1f},{y[i]:.1f}" for i in keep]
