"""The picture of calls over levels: a panel per world, a line per depth and searcher, through the means."""

import json
from pathlib import Path

from benchmarks import difficulty


def test_lines_go_through_the_means_of_each_level(tmp_path, monkeypatch):
    import matplotlib.axes

    drawn = []
    bars = matplotlib.axes.Axes.errorbar

    def kept(panel, x, y, bar, **more):
        drawn.append((more["label"], list(x), list(y), [list(b) for b in bar]))
        return bars(panel, x, y, bar, **more)

    monkeypatch.setattr(matplotlib.axes.Axes, "errorbar", kept)
    rows = [
        {
            "case": f"a world, depth {d}, level {k}",
            "metric": f"calls of {s}",
            "value": d * k + 0.5,
            "low": d * k,
            "high": d * k + 2,
        }
        for d in (2, 3)
        for k in (1, 2)
        for s in ("oracle", "branch and check")
    ]
    rows.append({"case": "a world, depth 2, level 1", "metric": "oracle", "value": 1.0, "low": 1.0, "high": 1.0})
    difficulty.plot(rows, tmp_path / "it.svg")
    assert (tmp_path / "it.svg").read_text().count("<svg") == 1
    assert sorted(drawn) == sorted(
        (f"{s}, depth {d}", [1, 2], [d + 0.5, 2 * d + 0.5], [[0.5, 0.5], [1.5, 1.5]])
        for d in (2, 3)
        for s in ("oracle", "branch and check")
    )


def test_the_committed_picture_is_of_the_committed_numbers(tmp_path):
    difficulty.plot(json.loads(difficulty.RESULT.read_text(encoding="utf-8")), tmp_path / "it.svg")
    assert Path(tmp_path / "it.svg").read_bytes() == difficulty.PICTURE.read_bytes()
