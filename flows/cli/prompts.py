"""`espalier prompts LOG`: which prompt for which question, learned from logged results; no model is asked."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from flows.cli._text import columns, dump


def add(commands: Any) -> None:
    p = commands.add_parser("prompts", help="choose a prompt for each question, by logged results of several prompts")
    p.add_argument(
        "log",
        metavar="LOG",
        help='rows {"query": ..., "prompt": ..., "score": 0 to 1}: JSON lines, JSON, CSV, Parquet, a folder, owner/name on the Hub',
    )
    p.add_argument("--queries", metavar="FILE", help='rows {"query": ...}: a prompt is chosen for each')
    p.add_argument("--out", type=Path, help="where the choices are written, as JSON lines (default: they are printed)")
    p.add_argument(
        "--held-out", type=float, default=0.3, help="share of the questions that it is tried on (default: 0.3)"
    )
    p.add_argument("--l2", type=float, default=1.0, help="how much evidence of words it takes (default: 1)")
    p.add_argument("--split", default="train", help="of a dataset that has several (default: train)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--json", action="store_true", help="print the results as JSON")
    p.set_defaults(run=prompts)


def prompts(args: argparse.Namespace) -> int:
    from tasks.rows import prompts as task

    log = task.read_log(args.log, split=args.split)
    known = task.learn(log, l2=args.l2)
    tried = task.held_out(log, share=args.held_out, seed=args.seed, l2=args.l2)
    if args.json:
        dump({"prompts": _table(known, tried), "held_out": tried})
    else:
        print(
            columns(
                [["prompt", "logged", "right", "chosen"], *(list(map(str, r.values())) for r in _table(known, tried))]
            )
        )
        if tried:
            print(f"\nOf {tried['questions']} questions that were held out, 95 % intervals")
            print(
                columns([[k, f"{v['mean']:.3f} [{v['low']:.3f}, {v['high']:.3f}]"] for k, v in tried["rows"].items()])
            )
        else:
            print(
                "\nNothing was held out: that takes two questions or more that were asked with every prompt, and others beside them"
            )
    if args.queries:
        chosen = [
            {"query": q, "prompt": p, "expected": round(r, 4)}
            for q in task.read_queries(args.queries, split=args.split)
            for p, r in [known.choose(q)]
        ]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in chosen)
        if args.out:
            args.out.write_text(text, encoding="utf-8")
            print(f"wrote {len(chosen)} choices to {args.out}")
        else:
            print("\n" + text, end="")
    return 0


def _table(known: Any, tried: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "prompt": name if len(name) <= 60 else f"{name[:57]}...",
            "logged": known.values.logged[i],
            "right": round(known.values.means[i], 3),
            "chosen": tried["chosen"][name] if tried else "",
        }
        for i, name in enumerate(known.prompts)
    ]
