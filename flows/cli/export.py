"""`espalier export`: a model for other programs, checked by reading it back. docs/export.md"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli._text import count

from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "export", help="write a model for other programs (Hub folder, adapter, GGUF, vLLM) and read it back"
    )
    p.add_argument(
        "model",
        metavar="MODEL",
        help="base, sft, prefer, rl or reward of this project, a model folder, or a Hub id",
    )
    p.add_argument("--to", required=True, metavar="hub|adapter|gguf|vllm", help="what reads it")
    p.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    p.add_argument(
        "--quant",
        action="append",
        metavar="TYPE",
        help="of a GGUF: f32 (the default), f16, bf16, q8_0, q5_0, q4_0 ...; more than once for more files",
    )
    p.add_argument(
        "--prompts",
        type=count,
        default=200,
        metavar="N",
        help="number of prompts that model and reader must answer alike (default: 200)",
    )
    p.add_argument("--license", default="", metavar="NAME", help="of a Hub folder, as the Hub writes it: apache-2.0")
    p.add_argument("--name", default="", help="of the card and of GGUF files (default: the model's)")
    p.add_argument("--base", default="", metavar="MODEL", help="what an adapter is for: a folder or a Hub id")
    p.set_defaults(run=export)


def export(args: argparse.Namespace) -> int:
    from tasks.export.export import Settings, export

    settings = Settings(
        quants=tuple(args.quant or ("f32",)),
        prompts=args.prompts,
        license=args.license,
        name=args.name,
        base=args.base,
    )
    readers = export(project(), args.model, args.to, args.out, settings)
    print(f"{args.out} is written and read back: {readers[-1].sentence()}")
    return 0
