"""`espalier serve MODEL`: an OpenAI-compatible endpoint on this machine, or with --training a training API. docs/export.md,
docs/training-api.md"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.paths import project

KEY = ".espalier/serve/key"


def add(commands: Any) -> None:
    p = commands.add_parser("serve", help="answer for a model as OpenAI's API does, on this machine only")
    p.add_argument(
        "model", nargs="?", metavar="MODEL", help="base, sft, prefer or rl of this project, a model folder, or a Hub id"
    )
    p.add_argument("--port", type=int, default=8000, help="default: 8000")
    p.add_argument("--name", default="", help="name of the model in requests (default: MODEL)")
    p.add_argument("--engine", default="torch", metavar="torch|vllm", help="engine that samples (default: torch)")
    p.add_argument("--device", default="", help="cpu, cuda or cuda:0 (default: a GPU if there is one)")
    p.add_argument(
        "--decoder",
        default="",
        metavar="NAME",
        help="how it answers: greedy, majority, best_of_n ... (docs/decoders.md; default: plain draws)",
    )
    p.add_argument(
        "--budget",
        type=int,
        default=0,
        metavar="N",
        help="forward tokens that a decoder may spend on an answer (default: no bound)",
    )
    p.add_argument(
        "--training", action="store_true", help="answer as a training API (forward_backward, optim_step, sample)"
    )
    p.set_defaults(run=serve)


def serve(args: argparse.Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM."""
    if not args.model:
        raise UserError(
            "name the model: `espalier serve MODEL` is an endpoint now; the schedules of prefect.yaml are started by `espalier schedule`"
        )
    from tasks.core import local

    if args.budget < 0 or (args.budget and not args.decoder):
        raise UserError(
            "--budget is what a decoder may spend, 1 or more: name one with --decoder, or leave --budget out"
        )
    if args.training and args.decoder:
        raise UserError(
            "--training samples with the model that learns, whose draws training needs as they are: leave out --decoder"
        )
    local.free(args.port)
    if args.training:
        return _training(args)
    from tasks.serving.api import guarded
    from tasks.models.served import served

    root = project()
    key = local.secret(root / KEY)
    decoding = None
    if args.decoder:
        from tasks.results.decoding import serving

        decoding = serving(root, args.decoder, args.budget)
    model = served(root, args.model, name=args.name, engine=args.engine, device=args.device, decoding=decoding)
    print(f"serving {model.name} at http://127.0.0.1:{args.port}/v1   (Ctrl-C ends it)")
    print(f"key: {key}   (kept in {Path(KEY)})", flush=True)
    try:
        local.run(guarded(model, key), port=args.port)
    finally:
        model.conversations.close()
    return 0


def _training(args: argparse.Namespace) -> int:
    if args.engine != "torch":
        raise UserError(f"--training samples with the model that learns: leave out --engine {args.engine}")
    from tasks.core import local
    from tasks.models.served import trained
    from tasks.serving.training_api import guarded

    root = project()
    key = local.secret(root / KEY)
    trainer = trained(root, args.model, name=args.name, device=args.device)
    print(f"training {trainer.name} at http://127.0.0.1:{args.port}   (Ctrl-C ends it)")
    print(f"key: {key}   (kept in {Path(KEY)}; Tinker's SDK shows it as tml-{key[:6]}...)", flush=True)
    local.run(guarded(trainer, key), port=args.port)
    return 0
