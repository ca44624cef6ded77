"""`espalier clean FILE`: clean preference pairs of one's own; cleaned, removed, flipped and asked, each with reasons, a
card and a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli._text import count


def add(commands: Any) -> None:
    p = commands.add_parser("clean", help="clean a file, folder or Hub dataset of preference pairs of your own")
    p.add_argument(
        "file",
        metavar="FILE",
        help="JSON lines, JSON, CSV, Parquet or Arrow, a folder of them, or owner/name on the Hub",
    )
    p.add_argument("--recipe", default="", help="one that sets the stage clean (default: preference-cleaning)")
    p.add_argument("--out", type=Path, help="folder to write into (default: FILE.cleaned beside it)")
    p.add_argument("--split", default="train", help="of a dataset that has several (default: train)")
    p.add_argument(
        "--columns",
        default="",
        metavar="OURS=YOURS,...",
        help="your columns: prompt=question,chosen=better,rejected=worse",
    )
    p.add_argument(
        "--scale", default="", metavar="WORDS", help="words of a rating scale, the worst first: bad,fair,good"
    )
    p.add_argument(
        "--protect",
        action="append",
        default=[],
        metavar="FILE",
        help="texts that must not be trained on; may be repeated",
    )
    p.add_argument(
        "--limit",
        type=count,
        default=200_000,
        help="characters of a prompt or side; longer rows are quarantined (default: 200000)",
    )
    p.add_argument(
        "--reviews",
        type=Path,
        metavar="FILE",
        help="decisions of `espalier review`: pairs that a person decided about are treated as proven",
    )
    p.set_defaults(run=clean)


def clean(args: argparse.Namespace) -> int:
    from tasks.errors import UserError
    from tasks.pairs.clean import FILES, clean_file

    columns = dict(part.split("=", 1) for part in args.columns.split(",") if "=" in part)
    if len(columns) != len([part for part in args.columns.split(",") if part]):
        raise UserError(
            f"--columns {args.columns!r}: write OURS=YOURS, separated by commas, such as prompt=question,chosen=better"
        )
    out = args.out or Path(f"{Path(args.file).name.partition('.')[0]}.cleaned")
    scale = [word.strip() for word in args.scale.split(",") if word.strip()]
    knobs = {
        "recipe": args.recipe,
        "split": args.split,
        "protect": args.protect,
        "limit": args.limit,
        "reviews": args.reviews,
    }
    cleaned = clean_file(args.file, out, columns=columns, scale=scale, **knobs)
    card = cleaned.card
    counts = card["pairs"]
    print(
        f"{counts['read']:,} pairs: {counts['cleaned']:,} cleaned ({card['flipped']:,} flipped), {counts['removed']:,} removed, "
        f"{counts['asked']:,} asked; {len(cleaned.quarantined):,} rows quarantined"
    )
    for name, numbers in [("quarantined", card["quarantined"]), *card["decisions"].items()]:
        acted = {k: n for k, n in numbers.items() if not k.startswith("keep")}
        if acted:
            print(f"  {name}: {', '.join(f'{k} {n:,}' for k, n in acted.items())}")
    if noise := card["noise"]:
        note = f"; {noise['note']}" if noise["note"] else ""
        print(f"  noise: {noise['rate']:.1%} [{noise['low']:.1%}, {noise['high']:.1%}] by {noise['method']}{note}")
    for note in [*card["notes"], *(f"{name} left out: {why}" for name, why in card["left_out"].items())]:
        print(f"  note: {note}")
    if args.reviews:
        print(f"  reviews: a person had decided about {card['reviewed']:,} of these pairs")
    print(f"wrote {', '.join(f'{n}.jsonl' for n in FILES)}, card.json and index.html to {out}")
    if counts["asked"]:
        again = f"espalier clean {args.file} --out {out} --reviews data/reviews.jsonl"
        print(f"Look next:  espalier review {out / 'asked.jsonl'}   then `{again}`")
    return 0
