"""`espalier selfplay`: play the rounds of a recipe in this process, and print one line per round."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.cli._text import count


def add(commands: Any) -> None:
    p = commands.add_parser(
        "selfplay", help="play a recipe's rounds of self-play: propose, certify, attempt, score, reward, update"
    )
    p.add_argument("--recipe", metavar="NAME", help="a recipe that plays, e.g. socratic-zero")
    p.add_argument(
        "--set",
        metavar="STAGE.KNOB=VALUE",
        action="append",
        default=[],
        help="change one value, e.g. problems.rounds=20",
    )
    p.add_argument(
        "--model",
        metavar="FOLDER",
        help="the solver: a trained model, e.g. artifacts/sft/model (default: the recipe's solver)",
    )
    p.add_argument(
        "--proposer", metavar="FOLDER", help="the proposer: a trained model, e.g. artifacts/selfplay/proposer"
    )
    p.add_argument(
        "--learn",
        metavar="N",
        type=count,
        default=0,
        help="N rounds in which solver and proposer learn, both from --model",
    )
    p.add_argument(
        "--lora",
        metavar="RANK",
        type=count,
        default=0,
        help="with --learn: solver and proposer are adapters of this rank on one base instead of two models",
    )
    p.add_argument(
        "--out",
        metavar="DIR",
        help="folder of ledger and plot (default: .espalier/selfplay/RECIPE); a run in it is resumed. With --learn: of the "
        "two models and their problems (default: artifacts/selfplay); those in it are replaced",
    )
    p.set_defaults(run=selfplay)


def selfplay(args: argparse.Namespace) -> int:
    from flows.overrides import blamed, merged, overrides
    from tasks.core.errors import UserError
    from tasks.core.paths import project
    from tasks.planning import plan
    from tasks.planning.pieces import bind_all
    from tasks.problems import selfplay as play
    from tasks.storage.commit import make_folder

    root = project()
    changes = overrides(args.recipe, args.set)
    if args.model:
        changes["set.problems.model"] = args.model
    with blamed(changes):
        plans = plan.plans(root, changed=lambda params: merged(params, changes))
    params = bind_all(plans["problems"]["pieces"], plans["problems"]["params"])
    if args.lora and not args.learn:
        raise UserError("--lora says how solver and proposer learn: give --learn too")
    if args.learn:
        return _learn(args, root, params, plans["_run"]["seed"])
    if args.proposer:
        from tasks.problems.trained import ModelProposer

        params["proposer"] = ModelProposer(args.proposer)
    out = Path(args.out) if args.out else root / ".espalier" / "selfplay" / plans["_run"]["recipe"]
    make_folder(out)
    solver = None
    if params["model"]:
        from tasks.problems.trained import model_solver

        solver = model_solver(params["model"])
    running = play.loop(params, seed=plans["_run"]["seed"], ledger=out / "ledger.db", solver=solver)
    print(play.HEADER)
    told = []
    for summary, line in play.played(running):
        told.append(summary)
        print(line, flush=True)
    target = params["curriculum"].keywords.get("target", 0.5)
    (out / "rounds.svg").write_text(play.plot(told, target), encoding="utf-8")
    running.ledger.close()
    if told[-1]["stop"]:
        print(f"\nstopped: {told[-1]['stop']}")
    print(
        f"\n{len(running.accepted)} certified problems. Look next:  {out / 'rounds.svg'} (the plot)   {out / 'ledger.db'} (every row)"
    )
    return 0


def _learn(args: argparse.Namespace, root: Path, params: dict[str, Any], seed: int) -> int:
    from tasks.core.errors import UserError
    from tasks.problems.proposing import learn
    from tasks.storage import commit

    if not args.model:
        raise UserError("--learn needs a model to start from: --model artifacts/sft/model, or a Hub id")
    out = Path(args.out) if args.out else None
    folder = learn(root, params, model=args.model, seed=seed, rounds=args.learn, lora=args.lora, out=out)
    card = commit.read_json(folder, "card.json")
    for line in card["told"]:
        print(f"{line.pop('round'):<12}{'  '.join(f'{k} {v:.3f}' for k, v in line.items())}")
    print(f"\n{card['problems']} certified problems in the pool. Look next:  {folder}")
    return 0
