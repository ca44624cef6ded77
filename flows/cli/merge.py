"""`espalier merge METHOD OUT MODEL ... --base MODEL`: merge several models that were trained from the same one.
docs/merging.md"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser("merge", help="make one model of several that were trained from the same one")
    p.add_argument("method", metavar="METHOD", help="average, task_arithmetic, ties, dare, layer_scaled ...")
    p.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="base, sft, prefer or rl of this project, a model folder, or a Hub id",
    )
    p.add_argument("--base", required=True, metavar="MODEL", help="the model from which all of them were trained")
    p.add_argument(
        "--knob", action="append", default=[], metavar="NAME=VALUE", help="of the method: density=0.5, weights=[1,2]"
    )
    p.add_argument("--texts", type=Path, metavar="FILE", help="a prompt per line, for methods that look at activations")
    p.add_argument("--seed", type=int, default=0, help="seed of methods that use random numbers")
    p.set_defaults(run=merge)


def merge(args: argparse.Namespace) -> int:
    """Raises UserError for a knob that is not NAME=VALUE."""
    import yaml

    from tasks.export.merge import merge

    knobs: dict[str, Any] = {}
    for text in args.knob:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"--knob {text!r} is no NAME=VALUE: write density=0.5, say")
        try:
            knobs[name] = yaml.safe_load(value)
        except yaml.YAMLError as e:
            raise UserError(f"--knob {text!r} has a value that cannot be read: write density=0.5, say") from e
    merge(project(), args.method, args.base, args.models, args.out, knobs=knobs, texts=args.texts, seed=args.seed)
    print(f"{args.out} is written: {args.method} of {', '.join(args.models)} over {args.base}")
    return 0
