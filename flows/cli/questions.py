"""`espalier questions`: grow questions from a knowledge base, and show twenty of them in order of difficulty.
docs/questions.md"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli._text import count, grown_from, named_values

from flows.cli import _endpoint

if TYPE_CHECKING:
    from tasks.planning.settings import Quotas


def add(commands: Any) -> None:
    p = commands.add_parser(
        "questions", help="grow questions with proofs from a knowledge base; show twenty at rising difficulty"
    )
    p.set_defaults(run=show, folder=Path("artifacts/questions"), n=20, page=None, kb=Path("artifacts/kb"), seed=0)
    kinds = p.add_subparsers(metavar="grow|show|rewrite")
    g = kinds.add_parser(
        "grow",
        help="grow fuzzy-tree questions and write problems.parquet, questions.jsonl, quarantine.parquet, card.json",
    )
    g.add_argument(
        "--kb", type=Path, default=Path("artifacts/kb"), metavar="DIR", help="of `espalier kb build` or the stage kb"
    )
    g.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    g.add_argument("--n", type=count, default=1000, help="questions wanted (default 1000)")
    g.add_argument("--depths", type=_numbers, default=[2, 3], metavar="2,3", help="depths, equally many of each")
    g.add_argument(
        "--levels",
        type=_numbers,
        default=[1, 2, 3, 4],
        metavar="1,2,3,4",
        help="fuzz levels; a question of another level is refused",
    )
    g.add_argument(
        "--closed-world", action="store_true", help="assume that every relation is complete (the card says so)"
    )
    g.add_argument(
        "--phrases",
        type=Path,
        metavar="FILE",
        help="YAML of your own phrases: {relation: {subject: ['that borders {y}']}}",
    )
    g.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="R,R*",
        help="relations that questions may use (default: all that a person would say)",
    )
    g.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help="a schema.yaml: questions use the relations that it names and no others",
    )
    g.add_argument(
        "--max-guess",
        type=float,
        default=0.1,
        help="largest share of the most frequent answer among the answers of its kind (default 0.1)",
    )
    g.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how much of one kind a set holds: root_attribute (default 1: one question about an attribute of a root; 0: any number), and the "
        "shares relation (default 0.4), shape and answer (0.5; 1: no limit)",
    )
    g.add_argument("--seed", type=int, default=0)
    g.add_argument("--workers", type=count, default=1, help="processes; the result does not depend on it")
    g.set_defaults(run=grow)
    r = kinds.add_parser(
        "rewrite", help="have a model put grown questions into its own words; each passes the gates again"
    )
    r.add_argument("folder", type=Path, metavar="DIR", help="of `questions grow`")
    grown_from(r)
    r.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    _endpoint.add(r)
    r.add_argument("--n", type=count, help="the first N questions (default: all)")
    r.add_argument("--dry-run", action="store_true", help="print an upper bound of the usage, and send no request")
    r.set_defaults(run=rewrite)
    s = kinds.add_parser("show", help="twenty questions from the easiest to the hardest, in the terminal or as a page")
    s.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("artifacts/questions"),
        metavar="DIR",
        help="default: artifacts/questions",
    )
    grown_from(s)
    s.add_argument("--n", type=count, default=20, help="how many (default 20)")
    s.add_argument("--page", type=Path, metavar="FILE", help="write an HTML page, or Markdown if FILE ends in .md")
    s.add_argument("--seed", type=int, default=0, help="seed of the sample")
    s.set_defaults(run=show)


def _numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]


def grow(args: argparse.Namespace) -> int:
    import yaml

    from tasks.core.errors import UserError
    from tasks.knowledge import knowledge
    from tasks.problems import grow
    from tasks.runtime.progress import Progress

    phrases = yaml.safe_load(args.phrases.read_text(encoding="utf-8")) if args.phrases else {}
    wanted = grow.cells({"train": args.n - args.n // 5, "test": args.n // 5}, args.depths)
    only = args.only + (grow.named(args.schema) if args.schema else [])
    knobs = {
        "seed": args.seed,
        "only": only,
        "levels": args.levels,
        "closed_world": args.closed_world,
        "max_guess": args.max_guess,
        "extra": phrases,
    }
    quotas, ranges = _quotas(args.quota), knowledge.ranges_at(args.kb)
    ends: dict = {}
    aside = grow.left_out(args.kb, only)
    with Progress(sum(wanted.values()), "accepted") as bar:
        accepted, quarantined = grow.grow(
            args.kb,
            wanted,
            workers=args.workers,
            quotas=quotas,
            ranges=ranges,
            ends=ends,
            on_accept=bar.update,
            aside=aside,
            **knobs,
        )
    if not accepted:
        raise UserError(
            f"no question passed the gates ({grow.tables.counts(quarantined)}): the knowledge base is too sparse, or says of no relation that it is "
            "complete: state so in its schema, or take it as it is with --closed-world"
        )
    card = grow.counts(accepted, quarantined, wanted, ranges, ends) | {
        "gates": grow.GATES,
        "knobs": {k: v for k, v in knobs.items() if k != "extra"},
        "phrases": phrases,
        "quotas": asdict(quotas),
        "world": "closed: every relation taken as complete"
        if args.closed_world
        else "clues only by relations that are complete",
        "kb": knowledge.digest_at(args.kb),
    }
    if aside:
        card["left_out"] = aside
    grow.write(args.out, args.kb, accepted, quarantined, card)
    print(f"accepted {card['accepted']} of {card['produced']}; quarantined: {card['quarantined'] or 'none'}")
    for cell, values in card["difficulty"].items():
        print(f"  {cell}: " + ", ".join(f"{k} {v:g}" for k, v in values.items()))
    for name, largest in card["diversity"].items():
        if isinstance(largest, dict):
            print(f"  largest shares by {name}: " + ", ".join(f"{key} {100 * x:.0f} %" for key, x in largest.items()))
    for cell, why in card["limits"].items():
        print(f"  {cell}: {why}")
    if aside:
        counts = ", ".join(f"{why} {n}" for why, n in sorted(Counter(aside.values()).items()))
        print(
            f"  {len(aside)} relations that nobody would say are left out ({counts}; card.json); --only '*' takes all"
        )
    if card["short"] and (left := card["quarantined"].get("over_quota")):
        print(
            f"  {left} were over a quota (over_quota); --quota root_attribute=2 lets in a second question about an attribute of a root"
        )
    print(
        f"written: {args.out}   espalier questions show {args.out} --kb {args.kb}   espalier verify {args.out / 'questions.jsonl'} --kb {args.kb}"
    )
    return 0


def _quotas(texts: list[str]) -> Quotas:
    from tasks.core.errors import UserError, nearest
    from tasks.planning.settings import Quotas

    given = named_values("--quota", texts, "root_attribute=2")
    names = [f.name for f in fields(Quotas)]
    for name, value in given.items():
        if name not in names:
            raise UserError(f"--quota {name}: unknown quota ({nearest(name, names)})")
        if isinstance(value, bool) or not isinstance(value, int if name == "root_attribute" else int | float):
            raise UserError(f"--quota {name}={value}: give a {'number' if name == 'root_attribute' else 'share'}")
    return Quotas(**given)


def rewrite(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError
    from tasks.knowledge import knowledge
    from tasks.problems import grow
    from tasks.storage import commit

    card = args.folder / "card.json"
    if not card.exists():
        raise UserError(f"{card} does not exist: name a folder that `espalier questions grow` has written")
    card_data = commit.read_object(card, remedy="`espalier questions grow` writes it anew")
    problems = [p for p in grow.read(args.folder / "problems.parquet")[0] if p.family == "fuzzy_tree"][: args.n]
    endpoint = _endpoint.made(args)
    knobs = card_data.get("knobs", {}) | {"extra": card_data.get("phrases", {})}
    reworded = grow.reword(args.kb, problems, endpoint, dry_run=args.dry_run, **knobs)
    if isinstance(reworded, grow.Estimate):
        cost = "" if reworded.cost is None else f", at most {reworded.cost:.4g} in the currency of the prices"
        usage = f"at most {reworded.prompt_tokens:,} prompt and {reworded.completion_tokens:,} completion tokens"
        print(f"{reworded.requests} requests ({reworded.cached} answers are in the cache): {usage}{cost}")
        return 0
    accepted, quarantined = reworded
    counted = grow.counts(accepted, quarantined, {}, knowledge.ranges_at(args.kb))
    used = {
        "requests": endpoint.usage.requests,
        "cached": endpoint.usage.cached,
        "failed": endpoint.usage.failed,
        "prompt_tokens": endpoint.usage.prompt_tokens,
        "completion_tokens": endpoint.usage.completion_tokens,
        "cost": endpoint.spent,
    }
    grow.write(args.out, args.kb, accepted, quarantined, card_data | counted | {"model": args.model, "used": used})
    print(
        f"accepted {counted['accepted']} of {counted['produced']}; quarantined: {counted['quarantined'] or 'none'}; used {used}"
    )
    return 0


def show(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError
    from tasks.knowledge.stored import opened
    from tasks.pages.questions import lines, markdown, page
    from tasks.problems import grow

    path = args.folder / "problems.parquet" if args.folder.is_dir() else args.folder
    if not path.exists():
        raise UserError(
            f"{path} does not exist: `dvc repro questions` makes it, or `espalier questions grow --kb DIR --out {args.folder}`"
        )
    problems = [p for p in grow.read(path)[0] if p.family in ("entity_tree", "fuzzy_tree")]
    if not problems:
        raise UserError(f"{path} holds no question about a knowledge base")
    sample = grow.rising(problems, args.n, seed=args.seed)
    kb = opened(args.kb)
    if args.page is None:
        print("\n".join(lines(sample, kb)))
        return 0
    args.page.parent.mkdir(parents=True, exist_ok=True)
    write = markdown if args.page.suffix == ".md" else page
    args.page.write_text(write(sample, kb, len(problems)), encoding="utf-8")
    print(f"written: {args.page}")
    return 0
