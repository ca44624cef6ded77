"""A graph of stages as inline SVG, from left to right: what each stage read and made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tasks.pages.plots import Shape, shape, svg

WIDTH, HEIGHT, GAP_X, GAP_Y = 148, 46, 40, 16


def flowchart(nodes: Mapping[str, tuple[str, str]], edges: Mapping[str, Sequence[str]]) -> Markup:
    """nodes: name -> (text below the name, colour class); edges: name -> the names that it reads. A stage's column is
    the length of its longest path from a source."""
    depth: dict[str, int] = {}

    def place(name: str) -> int:
        if name not in depth:
            depth[name] = 0  # stops a cycle, which DVC refuses anyway
            depth[name] = max((place(e) + 1 for e in edges.get(name, ()) if e in nodes), default=0)
        return depth[name]

    columns: dict[int, list[str]] = {}
    for name in nodes:
        columns.setdefault(place(name), []).append(name)
    rows = max(map(len, columns.values()), default=1)
    width, height = len(columns) * (WIDTH + GAP_X) - GAP_X + 4, rows * (HEIGHT + GAP_Y) - GAP_Y + 4
    at = {}
    for x, names in columns.items():
        top = (height - len(names) * (HEIGHT + GAP_Y) + GAP_Y) / 2
        for i, name in enumerate(names):
            at[name] = (2 + x * (WIDTH + GAP_X), top + i * (HEIGHT + GAP_Y))
    shapes: list[Shape] = []
    for name, sources in edges.items():
        for source in sources:
            if name in at and source in at:
                (x0, y0), (x1, y1) = at[source], at[name]
                x0, y0, y1 = x0 + WIDTH, y0 + HEIGHT / 2, y1 + HEIGHT / 2
                bend = max(20.0, (x1 - x0) / 2)
                curve = f"M{x0:.0f},{y0:.1f} C{x0 + bend:.0f},{y0:.1f} {x1 - bend:.0f},{y1:.1f} {x1:.0f},{y1:.1f}"
                shapes.append(shape("path", class_="edge", d=curve))
    for name, (text, colour) in nodes.items():
        x, y = at[name]
        left = f"{x + 10:.0f}"
        shapes.append(
            shape("rect", class_=f"node c-{colour}", x=f"{x:.0f}", y=float(y), width=WIDTH, height=HEIGHT, rx=8)
        )
        shapes.append(shape("text", name, class_="name", x=left, y=y + 19.0))
        shapes.append(shape("text", text, x=left, y=y + 35.0))
    label = "; ".join(f"{n} reads {', '.join(s)}" for n, s in edges.items() if s)
    return svg(
        shapes, width, round(height), label, style=f"min-width:{width * 0.88:.0f}px;max-width:{width * 1.2:.0f}px"
    )
