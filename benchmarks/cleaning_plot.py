"""The picture of `benchmarks/cleaning.py`: accuracy of the reward model over the rate of noise, a panel per kind, a
line per cleaner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHOWN = {  # method -> (colour, style)
    "none": ("#555555", "-"),
    "oracle": ("#14865a", "-"),
    "confident learning": ("#3b73c4", "-"),
    "blind margin": ("#b8791f", "-"),
    "RE-PO weights": ("#7a4fb5", "-"),
    "RwGap-R": ("#b3372f", "--"),
    "VoteMaj-R": ("#8a93a3", "--"),
    "policy": ("#000000", ":"),
}


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean over seeds with the range of the seeds shaded."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    mine = [r for r in rows if r["data"] == "simulated"]
    kinds = list(dict.fromkeys(r["noise"] for r in mine))
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), sharey=True)
    for panel, kind in zip(axes.flat, kinds, strict=False):
        for method, (colour, style) in SHOWN.items():
            points = [r for r in mine if r["noise"] == kind and r["method"] == method]
            rates = sorted({r["rate"] for r in points})
            if not rates:
                continue
            values = [[r["held_out"] for r in points if r["rate"] == rate] for rate in rates]
            x = [100 * rate for rate in rates]
            panel.plot(x, [np.mean(v) for v in values], style, color=colour, label=method, linewidth=1.6)
            panel.fill_between(
                x, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.12, linewidth=0
            )
        panel.set_title(kind, fontsize=10)
        panel.grid(alpha=0.25)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    for empty in axes.flat[len(kinds) :]:
        empty.axis("off")
        empty.legend(handles, labels, loc="center", fontsize=9, frameon=False)
    for panel in axes[:, 0]:
        panel.set_ylabel("held-out pairs ordered rightly, %")
    figure.supxlabel("wrong labels, %", fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
