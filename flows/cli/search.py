"""`espalier search`: search a knowledge base, serve it over HTTP on this machine, replay a recording.
docs/search.md"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli._text import count, plain


def add(commands: Any) -> None:
    p = commands.add_parser(
        "search", help="search, open and find in a knowledge base: here, or as a service on this machine"
    )
    kinds = p.add_subparsers(required=True, metavar="ask|open|find|serve|replay")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--kb",
        type=Path,
        default=Path("artifacts/kb"),
        metavar="DIR",
        help="folder of `espalier kb build` (default: artifacts/kb)",
    )
    ranked = argparse.ArgumentParser(add_help=False)
    ranked.add_argument(
        "--embeddings",
        default="",
        metavar="static|DIR",
        help="rank by BM25 and embeddings: `static` (pip install 'espalier[embeddings]'), or the folder of a sentence-embedding model; the vectors are kept beside the base, in KB.vectors (default: BM25 alone)",
    )
    ranked.add_argument(
        "--follow",
        type=count,
        default=0,
        metavar="N",
        help="also the pages that the query and the N best lines name, for questions of several steps or about two things (default: 0)",
    )
    for name, what in (
        ("ask", "the best lines for a query"),
        ("open", "a page by its title, part by part"),
        ("find", "lines with these words in this order"),
    ):
        one = kinds.add_parser(name, help=what, parents=[folder, ranked] if name == "ask" else [folder])
        one.add_argument("text", metavar="TEXT")
        if name == "open":
            one.add_argument("--part", type=count, default=1)
        else:
            one.add_argument("-k", type=count, default=5, help="lines (default: 5)")
        if name == "find":
            one.add_argument("--page", default="", help="on this page only")
        one.set_defaults(run=ask, tool="search" if name == "ask" else name)
    s = kinds.add_parser("serve", help="POST /search, /open, /find; GET /health, /metrics", parents=[folder, ranked])
    s.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: this machine alone)")
    s.add_argument("--port", type=int, default=8008)
    s.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="answer requests for this host name too"
    )
    s.add_argument("--record", type=Path, metavar="FILE", help="append every call and its answer to this file")
    s.set_defaults(run=serve)
    r = kinds.add_parser(
        "replay", help="send the calls of a recording again and compare every byte", parents=[folder, ranked]
    )
    r.add_argument("file", type=Path, metavar="FILE")
    r.set_defaults(run=replay)


def ask(args: argparse.Namespace) -> int:
    from tasks.knowledge import bases

    index = _index(args) if args.tool == "search" else bases.index(args.kb)
    if args.tool == "search":
        print(plain_lines(index.search(args.text, args.k)))
    elif args.tool == "open":
        print(plain_lines(index.open(args.text, args.part)))
    else:
        print(plain_lines(index.find(args.text, args.page, args.k)))
    return 0


def _index(args: argparse.Namespace) -> Any:
    from tasks.knowledge import bases

    return bases.index(args.kb, embeddings=args.embeddings, follow=args.follow)


def plain_lines(text: str) -> str:
    return "\n".join(map(plain, text.split("\n")))


def serve(args: argparse.Namespace) -> int:
    from tasks.knowledge.service import serve, service
    from tasks.core.local import LOOPBACK, free

    free(args.port, args.host)
    app = service(_index(args), hosts=tuple(args.allow_host), record=args.record)
    if args.host not in (*LOOPBACK, "::1"):
        print(
            f"anyone who can reach {args.host} can search {args.kb}; they must name this host as one of --allow-host or {', '.join(LOOPBACK)}"
        )
    print(f"searching {args.kb} at http://{args.host}:{args.port}   (Ctrl-C ends it)", flush=True)
    serve(app, host=args.host, port=args.port)
    return 0


def replay(args: argparse.Namespace) -> int:
    """Returns exit code 1 if an answer differs."""
    from tasks.core.errors import UserError
    from tasks.knowledge import recording

    if not args.file.is_file():
        raise UserError(f"{args.file} does not exist: `espalier search serve --record {args.file}` writes it")
    same, other = recording.replay(args.file, _index(args))
    print(
        f"{same} calls, {len(other)} answers differ" + (f" (lines {', '.join(map(str, other[:20]))})" if other else "")
    )
    return 1 if other else 0
