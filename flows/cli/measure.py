"""`espalier measure`: how hard questions are for searchers without a model, and for a model; bands for a curriculum.
docs/search.md"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from flows.cli._text import columns, count, grown_from


def add(commands: Any) -> None:
    p = commands.add_parser(
        "measure", help="how hard questions are: guess, one search, greedy, oracle, branch and check, and a model"
    )
    p.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("artifacts/questions"),
        metavar="FILE",
        help="problems.parquet, a .jsonl, or their folder",
    )
    grown_from(p)
    p.add_argument("--n", type=count, help="the first N of each split only")
    p.add_argument(
        "--most", type=count, default=600, metavar="CALLS", help="calls after which a searcher gives up (default 600)"
    )
    p.add_argument(
        "--model", help="base, sft, prefer or rl of this project, a folder, or a Hub id: its share of right answers"
    )
    p.add_argument("--samples", type=count, default=4, help="rollouts of the model per question (default 4)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write difficulty.jsonl, and problems.parquet with the questions that are kept",
    )
    p.add_argument(
        "--keep",
        type=lambda text: text.split(","),
        metavar="BAND,BAND",
        help="bands of problems.parquet (default: all but trivial)",
    )
    p.set_defaults(run=measure)


def measure(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError, nearest
    from tasks.core.paths import project
    from tasks.problems import grow
    from tasks.results import difficulty
    from tasks.runtime.progress import Progress
    from tasks.storage import tables

    path = args.file / "problems.parquet" if args.file.is_dir() else args.file
    for band in args.keep or ():
        if band not in difficulty.BANDS:
            raise UserError(f"there is no band {band!r}: {nearest(band, difficulty.BANDS)}")
    questions = [p for p in grow.read(path)[0] if "pattern" in p.lineage]
    if not questions:
        raise UserError(f"{path} holds no question about a knowledge base")
    seen: Counter[str] = Counter()
    problems = [p for p in questions if args.n is None or seen.update([p.split]) is None and seen[p.split] <= args.n]
    rates = (
        difficulty.pass_rates(project(), args.model, args.kb, problems, args.samples, seed=args.seed)
        if args.model
        else None
    )
    rows = difficulty.measure(
        args.kb, problems, most=args.most, rates=rates, progress=lambda work: Progress(work, "measure")
    )
    print(columns(difficulty.summary(rows), indent=""))
    print("bands: " + ", ".join(f"{n} {band}" for band, n in Counter(r["band"] for r in rows).most_common()))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "difficulty.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        keep = set(args.keep or [b for b in difficulty.BANDS if b != "trivial"])
        kept = [p for p, r in zip(problems, rows, strict=True) if r["band"] in keep]
        tables.write(args.out / "problems.parquet", kept, type(problems[0]))
        print(
            f"written: {args.out / 'difficulty.jsonl'}, and {len(kept)} of {len(problems)} questions in {args.out / 'problems.parquet'}"
        )
    return 0
