"""Plots as inline SVG (templates/plot.svg): they load nothing, and take their colours from the page's CSS, so that they
follow light and dark mode.

A series has a colour class `c-<name>` (c-base, c-sft, c-prefer, c-rl, else c-other); axes use the text colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from tasks.pages.render import render

Points = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]
Shape = tuple[str, dict[str, str], str | None]  # tag, attributes, text


def shape(tag: str, text: str | None = None, **attributes: str | float) -> Shape:
    """An SVG element: `class_` and `text_anchor` stand for class and text-anchor; a float has one decimal."""
    return (
        tag,
        {k.strip("_").replace("_", "-"): f"{v:.1f}" if isinstance(v, float) else str(v) for k, v in attributes.items()},
        text,
    )


def svg(
    shapes: Sequence[Shape],
    width: int,
    height: int,
    label: str,
    *,
    titled: bool = True,
    style: str = "",
    legend: Mapping[str, str] | None = None,
) -> Markup:
    """The drawing. With a legend (series -> name, drawn above) it is a self-contained file, with its colours inside, on
    white."""
    if legend is None:
        return render(
            "plot.svg",
            shapes=shapes,
            top=0,
            width=width,
            height=height,
            label=label,
            titled=titled,
            style=style,
            alone=False,
        )
    x, names = 56, []
    for series, name in legend.items():
        names.append(shape("text", name, class_=f"c-{series}", x=x, y=-4))
        x += 7 * len(name) + 16
    whole = [*names, *shapes]
    return render(
        "plot.svg",
        shapes=whole,
        top=-18,
        width=width,
        height=height + 18,
        label=label,
        titled=titled,
        style=style,
        alone=True,
    )


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """About `about` round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`."""
    span = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(span))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def label(x: float) -> str:
    """The short label of a tick: 12k, 80 M, 0.25, 1e-5."""
    if x and abs(x) < 1e-3:
        return f"{x:.0e}".replace("e-0", "e-")
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M")):
        if abs(x) >= size:
            return f"{x / size:g}{unit}"
    return f"{x / 1000:g}k" if abs(x) >= 10_000 else f"{x:g}"


def smooth(y: np.ndarray, window: int) -> np.ndarray:
    """Centred moving average whose window shrinks at both ends."""
    return _smoothed(y, window, np.arange(len(y)))


def _smoothed(y: np.ndarray, window: int, at: np.ndarray) -> np.ndarray:
    """`smooth` at some places."""
    if window < 2:
        return y[at]
    sums = np.zeros(len(y) + 1)
    np.cumsum(y, out=sums[1:])
    half = np.minimum(np.minimum(at, len(y) - 1 - at), window // 2)
    return (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)


def lines(
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    width: int = 330,
    height: int = 200,
    legend: Mapping[str, str] | None = None,
) -> Markup:
    """Curves with axis labels. A curve of more than 60 points is drawn faint, with its moving average (a 25th of its
    length) on top. `legend` as in `svg`."""
    finite = {name: _finite(points) for name, points in series.items()}
    finite = {name: p for name, p in finite.items() if len(p[0])}
    if not finite:
        return Markup()
    xs, ys = ([v for p in finite.values() for v in (p[k].min(), p[k].max())] for k in (0, 1))
    px, py, shapes = _axes(np.array(xs), np.array(ys), x, y, width, height)
    for name, (a, b) in finite.items():
        window = len(b) // 25 if len(b) > 60 else 1
        at = _drawn(len(a))
        if window > 1:
            shapes.append(_path(px(a[at]), py(b[at]), f"line faint c-{name}"))
        shapes.append(
            _path(px(a[at]), py(_smoothed(b, window, at)), f"line c-{name}")
            if len(a) > 1
            else shape("circle", class_=f"c-{name}", cx=px(a[0]), cy=py(b[0]), r=3)
        )
    title = f"{y} over {x}: {', '.join(f'{n} ends at {b[-1]:.4g}' for n, (_, b) in finite.items())}"
    return svg(shapes, width, height, title, legend=legend)


def bands(
    series: Mapping[str, tuple[str, Sequence[float], Sequence[float], Sequence[float] | None, Sequence[float] | None]],
    *,
    x: str,
    y: str,
    width: int = 330,
    height: int = 200,
) -> Markup:
    """Curves with intervals: name -> (colour class, x, mean, low, high); low and high are None without an interval."""
    if not series:
        return Markup()
    xs = np.concatenate([np.asarray(p[1], dtype=np.float64) for p in series.values()])
    ys = np.concatenate([np.asarray(v, dtype=np.float64) for p in series.values() for v in p[2:] if v is not None])
    px, py, shapes = _axes(xs, ys, x, y, width, height)
    ends = []
    for name, (colour, at, mean, low, high) in series.items():
        a = px(np.asarray(at, dtype=np.float64))
        if low is not None and high is not None:
            lower, upper = (_points(a, py(np.asarray(v, dtype=np.float64))) for v in (low, high))
            shapes.append(shape("path", class_=f"band b-{colour}", d=f"M{' '.join([*upper, *reversed(lower)])}Z"))
        shapes.append(_path(a, py(np.asarray(mean, dtype=np.float64)), f"line c-{colour}"))
        ends.append(
            f"{name} ends at {mean[-1]:.4g}"
            + (f" ({low[-1]:.4g} to {high[-1]:.4g})" if low is not None and high is not None else "")
        )
    return svg(shapes, width, height, f"{y} over {x}: {', '.join(ends)}")


def whiskers(
    rows: Sequence[tuple[str, str, Mapping[str, float]]], *, x: str, width: int = 410, row: int = 24
) -> Markup:
    """Dots with intervals on one axis from 0 to 1: rows of (label, series, {"mean", "low", "high"})."""
    left, right, bottom = 140, 42, 34
    height = row * len(rows) + bottom + 6
    px = lambda v: left + v * float(width - left - right)  # noqa: E731
    shapes = []
    for t in (0.0, 0.25, 0.5, 0.75, 1.0):
        shapes.append(shape("line", class_="grid", x1=px(t), x2=px(t), y1=4, y2=height - bottom))
        shapes.append(shape("text", f"{t:.0%}", x=px(t), y=height - bottom + 14, text_anchor="middle"))
    for i, (name, series, m) in enumerate(rows):
        at = 4 + row * (i + 0.5)
        shapes.append(shape("text", name, x=left - 10, y=at + 4, text_anchor="end", class_="row"))
        shapes.append(shape("line", class_=f"line c-{series}", x1=px(m["low"]), x2=px(m["high"]), y1=at, y2=at))
        shapes.append(shape("circle", class_=f"c-{series}", cx=px(m["mean"]), cy=at, r=4.5))
        shapes.append(shape("text", f"{m['mean']:.0%}", x=width - right + 8, y=at + 4))
    shapes.append(_across(x, (left + width - right) / 2, height))
    return svg(shapes, width, height, x, titled=False)


def reliability(series: Mapping[str, Sequence[Mapping[str, float]]], *, width: int = 330, height: int = 230) -> Markup:
    """A reliability diagram, the share of right answers over confidence, bin by bin: series -> points {"confidence",
    "right", "n"}; a dot's area is its share of the samples."""
    left, right, top, bottom = 52, 20, 12, 36
    px = lambda v: left + v * float(width - left - right)  # noqa: E731
    py = lambda v: height - bottom - v * float(height - top - bottom)  # noqa: E731
    shapes = [shape("line", class_="axis", x1=px(0), y1=py(0), x2=px(1), y2=py(1), stroke_dasharray="4 4")]
    for t in (0, 0.25, 0.5, 0.75, 1):
        shapes.append(shape("line", class_="grid", x1=left, x2=width - right, y1=py(t), y2=py(t)))
        shapes.append(shape("text", f"{t:.0%}", x=left - 6, y=py(t) + 3.5, text_anchor="end"))
        shapes.append(shape("text", f"{t:.0%}", x=px(t), y=height - bottom + 15, text_anchor="middle"))
    for name, points in series.items():
        total = sum(p["n"] for p in points) or 1
        shapes += [
            shape(
                "circle",
                class_=f"c-{name}",
                cx=px(p["confidence"]),
                cy=py(p["right"]),
                r=2 + 9 * math.sqrt(p["n"] / total),
                fill_opacity="0.75",
            )
            for p in points
        ]
    shapes.append(_across("confidence", (left + width - right) / 2, height))
    shapes.append(_upwards("share right", (height - bottom + top) / 2))
    title = "share right over confidence; on the dashed line a model is as often right as it is sure"
    return svg(shapes, width, height, title)


Place = Callable[[Any], Any]  # maps a number or an array to pixels


def _axes(xs: np.ndarray, ys: np.ndarray, x: str, y: str, width: int, height: int) -> tuple[Place, Place, list[Shape]]:
    """The maps from values to pixels of both axes, and the drawn grid with the axis names."""
    (x0, x1), (y0, y1) = _range(xs), _range(ys)
    left, right, top, bottom = 52, 10, 10, 36
    px = lambda v: left + (v - x0) / (x1 - x0) * (width - left - right)  # noqa: E731
    py = lambda v: height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom)  # noqa: E731
    shapes = []
    for t in ticks(y0, y1):
        shapes.append(shape("line", class_="grid", x1=left, x2=width - right, y1=py(t), y2=py(t)))
        shapes.append(shape("text", label(t), x=left - 6, y=py(t) + 3.5, text_anchor="end"))
    for t in ticks(x0, x1):
        shapes.append(shape("text", label(t), x=px(t), y=height - bottom + 15, text_anchor="middle"))
    shapes.append(shape("line", class_="axis", x1=left, x2=width - right, y1=height - bottom, y2=height - bottom))
    shapes += [_across(x, (left + width - right) / 2, height), _upwards(y, (height - bottom + top) / 2)]
    return px, py, shapes


def _across(name: str, middle: float, height: int) -> Shape:
    """Draws the name of the horizontal axis."""
    return shape("text", name, class_="name", x=f"{middle:.0f}", y=height - 4, text_anchor="middle")


def _upwards(name: str, middle: float) -> Shape:
    """Draws the name of the vertical axis."""
    turn = f"rotate(-90 12 {middle:.0f})"
    return shape("text", name, class_="name", x=12, y=f"{middle:.0f}", text_anchor="middle", transform=turn)


def _finite(points: Points) -> tuple[np.ndarray, np.ndarray]:
    a, b = (np.asarray(v, dtype=np.float64) for v in points)
    ok = np.isfinite(a) & np.isfinite(b)
    return a[ok], b[ok]


def _range(v: np.ndarray) -> tuple[float, float]:
    """Range of the values; a constant gets a margin on both sides."""
    low, high = float(v.min()), float(v.max())
    return (
        (low, high)
        if high - low > 1e-12 * max(abs(low), abs(high))
        else (low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2)
    )


def _path(x: np.ndarray, y: np.ndarray, classes: str) -> Shape:
    return shape("path", class_=classes, d=f"M{' '.join(_points(x, y))}")


def _points(x: np.ndarray, y: np.ndarray) -> list[str]:
    return [f"{x[i]:.1f},{y[i]:.1f}" for i in _drawn(len(x))]


def _drawn(n: int) -> np.ndarray:
    """Those of n points that are drawn: more than pixels show nothing more."""
    return np.unique([*range(0, n, max(1, n // 400)), n - 1])
