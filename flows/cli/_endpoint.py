"""The arguments of commands that query a model behind an endpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli._text import count


def add(p: argparse.ArgumentParser, *, required: bool = True) -> None:
    """required: whether the command cannot do without a model; `made` then gives no None."""
    p.add_argument(
        "--endpoint", required=required, metavar="URL", help="OpenAI-compatible, up to /v1; `vllm serve MODEL` is one"
    )
    p.add_argument("--model", required=required, help="the model as the endpoint calls it")
    p.add_argument(
        "--cache", type=Path, default=Path(".espalier/answers.sqlite"), help="file that keeps answers between runs"
    )
    p.add_argument("--max-tokens", type=count, help="stop before more than this many tokens are used")
    p.add_argument("--max-cost", type=float, help="stop before it costs more (needs --prices)")
    p.add_argument(
        "--prices",
        type=lambda t: [float(x) for x in t.split(",")],
        metavar="IN,OUT",
        help="per million prompt and completion tokens",
    )


def made(args: argparse.Namespace) -> Any:
    """The endpoint that the arguments name, None if they name none. Raises UserError."""
    from tasks.core.errors import UserError
    from tasks.models.endpoint import endpoint

    given = {"--endpoint": args.endpoint, "--model": args.model}
    if not any(given.values()):
        return None
    for option, value in given.items():
        if not value:
            other = next(o for o in given if o != option)
            raise UserError(
                f"{other} needs {option}: name the address up to /v1, and the model as the endpoint calls it"
            )
    return endpoint(
        args.endpoint, args.model, args.cache, tokens=args.max_tokens, cost=args.max_cost, prices=args.prices
    )
