"""`espalier kb build`, `kb show` and `kb review`: a knowledge base from files of your own, without a pipeline. docs/knowledge.md"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from flows.cli import _endpoint
from flows.cli._text import count


def add(commands: Any) -> None:
    p = commands.add_parser(
        "kb", help="make a knowledge base of documents, tables or triples, and see what questions it can carry"
    )
    kinds = p.add_subparsers(required=True, metavar="build|show|review")
    b = kinds.add_parser("build", help="read sources; write tables, postings, a search index and a schema to edit")
    b.add_argument("sources", nargs="*", metavar="SOURCE", type=Path, help="files and folders; their kinds are guessed")
    b.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder to write; an earlier one there is replaced"
    )
    b.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help="an edited schema.yaml; SOURCEs replace the paths in it, and may lack relations of it",
    )
    b.add_argument(
        "--world", type=count, default=0, metavar="COUNTRIES", help="add a fictional world of that size (default: none)"
    )
    b.add_argument("--seed", type=int, default=0, help="of the fictional world")
    b.add_argument(
        "--bad-rows", type=count, metavar="N", help="stop where more than N rows are quarantined (default: never)"
    )
    _endpoint.add(b, required=False)
    b.set_defaults(run=build)
    s = kinds.add_parser("show", help="counts, density, and the depth of questions that a knowledge base carries")
    s.add_argument(
        "folder", nargs="?", type=Path, default=Path("artifacts/kb"), metavar="DIR", help="default: artifacts/kb"
    )
    s.add_argument("--relations", action="store_true", help="list its relations too")
    s.set_defaults(run=show)
    r = kinds.add_parser("review", help="names that may be one thing, for you to decide in schema.yaml")
    r.add_argument(
        "folder", nargs="?", type=Path, default=Path("artifacts/kb"), metavar="DIR", help="default: artifacts/kb"
    )
    r.set_defaults(run=review)


def build(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError
    from tasks.knowledge import bases
    from tasks.knowledge.schema import read_inverses, read_names, read_schema

    sources, relations = read_schema(args.schema) if args.schema else ([], {})
    elsewhere = bases.are_others(args.sources, sources)
    sources = bases.sources_of(args.sources, sources)
    if not sources and not args.world:
        raise UserError("there is nothing to read: name a SOURCE, a --schema with sources, or a --world")
    endpoint = _endpoint.made(args)
    ask = None
    if endpoint is not None:
        from tasks.models.endpoint import asker

        ask = asker(endpoint, f"{args.model} reads")
    try:
        card = bases.build_base(
            sources,
            args.out,
            relations=relations,
            countries=args.world,
            seed=args.seed,
            bad_rows=args.bad_rows,
            names=read_names(args.schema) if args.schema else None,
            elsewhere=elsewhere,
            ask=ask,
            model=args.model or "",
            inverse_of=read_inverses(args.schema) if args.schema else None,
        )
    except (ValueError, UserError) as error:
        if args.schema or not sources:
            raise UserError(str(error)) from error
        path, line = bases.write_guess(sources, args.out)
        raise UserError(
            f"{error}; how the sources were understood is in {path}: change the line `{line}` there, and build with "
            f"--schema {path}"
        ) from error
    if absent := card.get("absent"):
        some = ", ".join(absent[:20]) + (f" and {len(absent) - 20} more (card.json)" if len(absent) > 20 else "")
        print(
            f"warning: {len(absent)} of {len(relations)} relations in {args.schema} are passed over, for these sources do not have "
            f"them: {some}",
            file=sys.stderr,
        )
    if absent := card.get("absent_options"):
        some = ", ".join(absent[:20]) + (f" and {len(absent) - 20} more (card.json)" if len(absent) > 20 else "")
        print(
            f"warning: options of the sources in {args.schema} are passed over, for these sources do not have what they name: {some}",
            file=sys.stderr,
        )
    print("\n".join([*bases.summary(card), *bases.gave(args.out)]))
    print(
        f"written: {args.out}   to change how it was understood, edit {args.out / 'schema.yaml'} and build again with --schema"
    )
    if endpoint is not None:
        used = endpoint.usage
        print(
            f"requests: {used.requests:,} ({used.cached:,} more answers were in {args.cache}), {used.prompt_tokens:,} prompt and "
            f"{used.completion_tokens:,} completion tokens"
        )
    if stopped := card.get("model", {}).get("stopped"):
        raise UserError(
            f"{stopped}; {args.out} has what is read without a model, and the same command goes on from here"
        )
    return 0


def show(args: argparse.Namespace) -> int:
    from tasks.knowledge import bases

    card, relations, facts = bases.card(args.folder), [], {}
    if args.relations:
        kb = bases.load(args.folder)
        relations, facts = list(kb.relations.values()), Counter(f.relation for f in kb.facts.values())
    print("\n".join(bases.summary(card, relations, facts)))
    return 0


def review(args: argparse.Namespace) -> int:
    import yaml

    from tasks.knowledge import bases

    pairs = bases.doubtful(args.folder)
    if not pairs:
        print("no two names may be one thing")
        return 0
    decided: dict[str, dict[str, str]] = {}
    for pair in pairs:
        print(f"{pair.type}: {pair.name} = {pair.other}?   {pair.why}")
        decided.setdefault(pair.type, {})[pair.other] = pair.name
    print(
        f"\nadd to {args.folder / 'schema.yaml'} what is one thing (or a name to itself, where it is not) and build again "
        "with --schema:\n"
    )
    print(yaml.safe_dump({"names": decided}, sort_keys=False, allow_unicode=True), end="")
    return 0
