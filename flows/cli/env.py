"""`espalier env list`: the environments in which problems are played, a line each; `espalier env show NAME`: one, with
its knobs and three worked examples; `espalier env audit NAME`: what its reward is worth before a model is trained on it."""

from __future__ import annotations

import argparse
from typing import Any

from flows.cli._text import count


def add(commands: Any) -> None:
    p = commands.add_parser("env", help="list the environments: tools, budgets, what ends an episode")
    what = p.add_subparsers(dest="what", required=True, metavar="list|show|audit")
    every = what.add_parser("list", help="a line for each environment")
    every.set_defaults(run=listed)
    one = what.add_parser("show", help="one environment with its knobs, and three examples, right and wrong")
    one.add_argument("name", metavar="ENVIRONMENT")
    one.set_defaults(run=shown)
    checked = what.add_parser("audit", help="try its reward without a model: junk, constants, repeats, leaks")
    checked.add_argument("name", metavar="ENVIRONMENT", help="one of `env list`, or an adapter, such as reasoning_gym")
    checked.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="of an adapter: task=chain_sum python=...")
    checked.add_argument(
        "--family", help="problems of this family; else those of artifacts/problems and artifacts/questions"
    )
    checked.add_argument("-n", type=count, default=100, help="number of problems to check (default 100)")
    checked.add_argument("--json", action="store_true", help="findings as JSON")
    checked.set_defaults(run=audited)


def listed(args: argparse.Namespace) -> int:
    from tasks.planning.environments import environments

    rows = [
        (e.name, e.tools or "none", _pairs(e.budgets) or "-", e.ends or "its file does not say") for e in environments()
    ]
    heads = ("environment", "tools", "budgets", "ends with")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(3)]
    for row in [heads, *rows]:
        print("  ".join([*(f"{x:<{w}}" for x, w in zip(row, widths, strict=False)), row[3]]))
    print(
        "Tokens: sampling.max_turn_tokens of a turn and sampling.max_tokens of a conversation, of the stage that plays it."
    )
    return 0


def shown(args: argparse.Namespace) -> int:
    from tasks.planning.environments import environment

    e = environment(args.name)
    print(f"{e.name}: {e.about}")
    print(f"  tools    {e.tools or 'none'}")
    print(f"  budgets  {_pairs(e.budgets) or '-'}")
    print(f"  ends     {e.ends or 'its file does not say'}")
    for name, default in e.knobs.items():
        print(f"  {name:<16} {default!r}")
    _examples(e.name)
    return 0


def _examples(name: str) -> None:
    """Prints three worked examples; of an environment of the user's own a sentence why there are none."""
    from tasks.core.errors import UserError
    from tasks.evaluation.env_examples import lines

    try:
        print("", *lines(name), sep="\n")
    except UserError as e:
        print(f"\n{e}")


def audited(args: argparse.Namespace) -> int:
    """Returns 0 if every decidable check holds, 1 otherwise."""
    import dataclasses
    import json

    from tasks.core.errors import UserError, nearest
    from tasks.evaluation import env_audit
    from tasks.evaluation.env_audit import adapters
    from tasks.planning.pieces import files, find, open_own

    open_own()
    if args.n < 1:
        raise UserError(f"-n {args.n}: look at one problem at least")
    if args.name.replace("-", "_") in adapters():
        train, test = env_audit.drawn({"adapter": args.name, **_options(args.options)}, args.n)
        findings = env_audit.audit_external(train, test)
    elif args.name.replace("-", "_") not in (own := sorted(files("env"))):
        raise UserError(
            f"no environment and no adapter is called {args.name!r}: {nearest(args.name, [*own, *adapters()])}"
        )
    elif args.options:
        raise UserError(f"{args.options[0]}: options are for adapters ({', '.join(adapters())}), not for {args.name}")
    else:
        env = find("env", args.name)()
        train, test = env_audit.problems(args.name, args.family, args.n)
        findings = env_audit.audit(env, train, test)
    if args.json:
        print(json.dumps([{"name": f.name, **dataclasses.asdict(f)} for f in findings], ensure_ascii=False, indent=1))
    else:
        width = max(len(f.check) for f in findings)
        for f in findings:
            word = "not decided" if f.holds is None else "holds" if f.holds else "FINDING"
            print(f"{word:<11}  {f.name:<9}  {f.check:<{width}}  {f.text}")
    return int(any(f.holds is False for f in findings))


def _options(words: list[str]) -> dict[str, Any]:
    """Parses `key=value`, the value as YAML. Raises UserError for any other form."""
    import yaml

    from tasks.core.errors import UserError

    for word in words:
        if "=" not in word:
            raise UserError(f"{word!r} is no option of an adapter: write key=value")
    try:
        return {k: yaml.safe_load(v) for k, _, v in (w.partition("=") for w in words)}
    except yaml.YAMLError as e:
        raise UserError(f"an option is no YAML: {' '.join(str(e).split())}") from e


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:g}" if isinstance(v, int | float) else f"{k} {v}" for k, v in values.items())
