"""`espalier merge METHOD OUT MODEL ... --base MODEL`: merge several models that were trained from the same one.
docs/merging.md"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.cli._text import columns, named_values
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser("merge", help="make one model of several that were trained from the same one")
    p.add_argument("method", metavar="METHOD", help="average, task_arithmetic, ties, dare, layer_scaled ...")
    p.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="base, sft, prefer or rl of this project, a model folder, or a Hub id",
    )
    p.add_argument("--base", required=True, metavar="MODEL", help="the model from which all of them were trained")
    p.add_argument(
        "--knob", action="append", default=[], metavar="NAME=VALUE", help="of the method: density=0.5, weights=[1,2]"
    )
    p.add_argument("--texts", type=Path, metavar="FILE", help="a prompt per line, for methods that look at activations")
    p.add_argument("--seed", type=int, default=0, help="seed of methods that use random numbers")
    p.add_argument(
        "--evaluate",
        action="append",
        default=[],
        metavar="FILE[:LAYOUT]",
        help="questions and answers of a task (JSONL, JSON, CSV, Parquet): base, models and merge answer them, and the report says what "
        "the merge gained and lost; again for more tasks",
    )
    p.add_argument("--limit", type=int, default=0, metavar="N", help="questions of each task (default: all)")
    p.add_argument(
        "--samples", type=int, default=1, metavar="N", help="answers to each: 1 takes the likeliest, more are drawn"
    )
    p.add_argument("--max-tokens", type=int, default=256, metavar="N", help="of an answer (default: 256)")
    p.set_defaults(run=merge)


def merge(args: argparse.Namespace) -> int:
    """Raises UserError for a knob that is not NAME=VALUE."""
    from tasks.export.merge import merge

    knobs = named_values("--knob", args.knob, "density=0.5")
    measures = merge(
        project(),
        args.method,
        args.base,
        args.models,
        args.out,
        knobs=knobs,
        texts=args.texts,
        seed=args.seed,
        tests=args.evaluate,
        limit=args.limit,
        samples=args.samples,
        max_tokens=args.max_tokens,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    print(f"{args.out} is written: {args.method} of {', '.join(args.models)} over {args.base}")
    if measures:
        print(columns(gains(measures), indent=""))
    return 0


def gains(measures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Lines of a table: per task the share that each model is right in, and against it the merge's difference in points, with
    the problems that the merge alone and the model alone solves."""
    points = lambda m: f"{100 * m['mean']:+.1f} [{100 * m['low']:+.1f}, {100 * m['high']:+.1f}]"  # noqa: E731
    lines: list[tuple[str, ...]] = [("task", "model", "right", "merge minus it", "gained", "lost", "p (Holm)")]
    for task, of in measures.items():
        for model, right in of["right"].items():
            share = f"{100 * right['mean']:.1f} % of {right['n']}" if right["n"] else "unscorable"
            known = of["over"].get(model)
            if known is None or not known["difference"]["n"]:
                lines.append((task, model, share, "", "", "", ""))
                continue
            gap = known["difference"]
            holm = f"{gap['p_holm']:.3f}" if "p_holm" in gap else ""
            lines.append((task, model, share, points(gap), str(known["gained"]), str(known["lost"]), holm))
    return lines
