"""`espalier pairs FILE`: make pairs from conversations or questions of your own, with a model behind an endpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli import _endpoint


def add(commands: Any) -> None:
    p = commands.add_parser(
        "pairs", help="make preference pairs of your own conversations or questions, with a model behind an endpoint"
    )
    p.add_argument(
        "file",
        metavar="FILE",
        help="rows with `messages` or `prompt`: JSON lines, JSON, CSV, Parquet, a folder, owner/name on the Hub",
    )
    p.add_argument(
        "--recipe",
        required=True,
        help="one that names a maker: rlhi, ipo-intervened, medcritical, per-step-dpo-negatives, ...",
    )
    _endpoint.add(p)
    p.add_argument("--out", type=Path, help="folder to write into (default: FILE.pairs)")
    p.add_argument("--split", default="train", help="of a dataset that has several (default: train)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dry-run", action="store_true", help="print the least number of requests, and send none")
    p.set_defaults(run=pairs)


def pairs(args: argparse.Namespace) -> int:
    from tasks.rows import make as makers

    if args.dry_run:
        unasked = makers.Unasked()
        outcome = makers.make_file(args.file, args.recipe, unasked, seed=args.seed, split=args.split)
        print(
            f"{outcome.card['produced']} places; at least {unasked.requests} requests of at most {unasked.tokens:,} completion tokens in all"
        )
        return 0
    endpoint = _endpoint.made(args)
    outcome = makers.make_file(args.file, args.recipe, endpoint, seed=args.seed, split=args.split)
    outcome.card.update({"model": args.model, "used": {**vars(endpoint.usage), "cost": endpoint.spent}})
    out = args.out or Path(f"{Path(args.file).name.partition('.')[0]}.pairs")
    makers.write(outcome, out)
    used = endpoint.usage
    print(
        f"{outcome.card['produced']} places: {len(outcome.pairs)} pairs; quarantined: {outcome.card['quarantined'] or 'none'}"
    )
    print(
        f"{used.requests} requests, {used.cached} from the cache, {used.prompt_tokens:,} prompt and {used.completion_tokens:,} completion tokens"
    )
    print(f"wrote pairs.jsonl, quarantine.jsonl and card.json to {out}; next: espalier clean {out / 'pairs.jsonl'}")
    return 0
