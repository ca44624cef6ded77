"""`espalier chat MODEL`: ask a trained model in the terminal, and see its searches and their results as they happen."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.core.paths import project
from tasks.core.text import harmless, own

PARTS = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
ENDINGS = {
    "right": "right",
    "wrong": "wrong",
    "malformed": "neither a search nor an answer: the conversation ends here",
    "out_of_calls": "no more searches are allowed: the conversation ends here",
    "truncated": "cut off: out of tokens (evaluate.sampling.max_turn_tokens and max_tokens)",
    "unscorable": "the answer could not be checked",
}


def add(commands: Any) -> None:
    p = commands.add_parser("chat", help="talk to a trained model, its search tool included where it has one")
    p.add_argument(
        "model", metavar="MODEL", help="base, sft, prefer or rl of this project, a model folder, or a Hub id"
    )
    p.add_argument("--question", metavar="TEXT", help="ask this one question and stop")
    p.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="0 (the default) takes the likeliest token, 1 samples as in training",
    )
    p.add_argument(
        "--decoder",
        default="",
        metavar="NAME",
        help="how it answers: greedy, sample, majority, best_of_n ... (docs/decoders.md)",
    )
    p.add_argument(
        "--budget",
        type=int,
        default=0,
        metavar="N",
        help="forward tokens that a decoder may spend on a turn (default: no bound)",
    )
    p.add_argument("--seed", type=int, default=0, help="of the sampling, and of the choice of held-out questions")
    p.add_argument(
        "--kb", metavar="DIR", type=Path, help="folder with passages.parquet to search in (default: artifacts/kb)"
    )
    p.set_defaults(run=chat)


def chat(args: argparse.Namespace) -> int:
    from rich.console import Console

    from tasks.core.errors import UserError
    from tasks.results.chat import Chat

    if args.budget and not args.decoder:
        raise UserError("--budget is what a decoder may spend: name one with --decoder, or leave --budget out")
    out = Console(file=own(sys.stdout), highlight=False, soft_wrap=True)
    with Console(file=own(sys.stderr)).status("loading the model"):
        talk = Chat(
            project(),
            args.model,
            kb=args.kb,
            temperature=args.temperature,
            seed=args.seed,
            decoder=args.decoder,
            tokens=args.budget,
        )
    if args.question is not None:
        answer(out, talk, args.question)
        return 0
    asks, held_out = sys.stdin.isatty(), talk.held_out()
    if asks:
        out.print("[dim]A question, or Enter for one that was held out of the training. Ctrl-D ends.[/dim]")
    for line in typed() if asks else sys.stdin:
        question = line.strip() or (next(held_out, "") if asks else "")
        if not question:
            continue
        if not asks or not line.strip():  # it is not on the screen yet
            out.print(f"[bold]? {plain(question)}[/bold]")
        answer(out, talk, question)
    return 0


def typed() -> Iterator[str]:
    """The lines typed in a terminal, until Ctrl-D."""
    import readline  # noqa: F401  the import gives `input` editing and history

    while True:
        try:
            yield input("\n? ")
        except EOFError:
            print()
            return


def answer(out: Any, talk: Any, question: str) -> None:
    """Plays one question and prints it turn by turn."""
    before = len(talk.accounts)
    end = talk.ask(question, lambda message: show(out, message))
    for account in talk.accounts[before:]:
        cost = ", ".join(f"{n} of the {model}" for model, n in account.tokens.items())
        way = f"; sampled by its {account.path}" if account.path == "own layers" else ""
        out.print(f"  [dim]forward tokens: {cost}; {account.seconds:.2f} s{way}[/dim]")
        for event in account.events:
            out.print(f"  [dim]{plain(event)}[/dim]")
    if end.outcome != "answered":
        good = end.outcome == "right"
        reference = f" (reference: {plain(end.reference)})" if end.reference and not good else ""
        out.print(f"  [{'green' if good else 'red'}]{ENDINGS[end.outcome]}{reference}[/]")


def show(out: Any, message: Any) -> None:
    """Prints one turn: searches and answers are highlighted, tool results are dim, and other text is shown as
    written."""
    if message.role != "assistant":
        out.print("\n".join(f"  [dim]  {plain(line)}[/dim]" for line in message.content.splitlines()))
        return
    at = 0
    for match in PARTS.finditer(message.content):
        loose(out, message.content[at : match.start()])
        kind, inner = match.groups()
        out.print(
            f"  [cyan]search[/cyan] {plain(inner)}"
            if kind == "search"
            else f"  [bold green]answer[/bold green] {plain(inner)}"
        )
        at = match.end()
    loose(out, message.content[at:])


def loose(out: Any, text: str) -> None:
    if text.strip():
        out.print(f"  {plain(text.strip())}")


def plain(text: str) -> str:
    """Model-written text made safe for a terminal: without our markup, and without control characters, which could move
    the cursor or set the title."""
    from rich.markup import escape

    return escape(harmless(text))
