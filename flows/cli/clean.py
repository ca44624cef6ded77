"""`espalier clean FILE`: clean preference pairs of your own; writes cleaned, removed, flipped and asked pairs, each
with reasons, a card and a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.cli._rows import add_rows, reader_of


def add(commands: Any) -> None:
    p = commands.add_parser("clean", help="clean a file, folder or Hub dataset of preference pairs of your own")
    add_rows(p)
    p.add_argument("--recipe", default="", help="one that sets the stage clean (default: preference-cleaning)")
    p.add_argument("--out", type=Path, help="folder to write into (default: FILE.cleaned beside it)")
    p.add_argument(
        "--protect",
        action="append",
        default=[],
        metavar="FILE",
        help="texts that must not be trained on; may be repeated",
    )
    p.add_argument(
        "--reviews",
        type=Path,
        metavar="FILE",
        help="decisions of `espalier review`: pairs that a person decided about are treated as proven",
    )
    p.add_argument(
        "--ray",
        default="",
        metavar="HOST:PORT",
        help="Ray cluster whose machines judge parts of the pairs (docs/scaling.md)",
    )
    p.set_defaults(run=clean)


def clean(args: argparse.Namespace) -> int:
    from tasks.rows.clean import FILES, clean_file

    out = args.out or Path(f"{Path(args.file).name.partition('.')[0]}.cleaned")
    knobs = {"recipe": args.recipe, "split": args.split, "protect": args.protect, "reviews": args.reviews}
    with _elsewhere(args.ray) as mapped:
        cleaned = clean_file(args.file, out, reader=reader_of(args), mapped=mapped, **knobs)
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
        to = args.reviews or Path("data/reviews.jsonl")
        again = f"espalier clean {args.file} --out {out} --reviews {to}"
        there = f" --to {args.reviews}" if args.reviews else ""
        print(f"Look next:  espalier review {out / 'asked.jsonl'}{there}   then `{again}`")
    return 0


@contextmanager
def _elsewhere(ray: str) -> Iterator[Any]:
    """What runs a function for parts of the pairs: on the machines of the cluster `ray`, or here without one."""
    if not ray:
        yield map
        return
    from tasks.planning.places import check_address
    from tasks.runtime.ray_tasks import tasks

    check_address(ray, "--ray")
    with tasks(ray, "--ray", Path.cwd()) as pool:
        yield pool.imap
