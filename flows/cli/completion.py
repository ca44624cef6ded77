"""`espalier completion bash|zsh|fish`: complete commands, options, recipes, stages and states with the Tab key."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from tasks.core.paths import project

SCRIPTS = {
    "bash": """_espalier() {
  local IFS=$'\\n'
  COMPREPLY=($(espalier completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [ ${#COMPREPLY[@]} -eq 0 ] && COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _espalier espalier
""",
    "zsh": """#compdef espalier
_espalier() {
  local -a found
  found=("${(@f)$(espalier completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${found[*]}" ]]; then compadd -- $found; else _files; fi
}
compdef _espalier espalier
""",
    "fish": """function __espalier
    set -l tokens (commandline -opc) (commandline -ct)
    espalier completion words -- $tokens[2..-1] 2>/dev/null
end
complete -c espalier -f -a '(__espalier)'
""",
}
WHERE = {
    "bash": 'eval "$(espalier completion bash)"            # in ~/.bashrc',
    "zsh": 'eval "$(espalier completion zsh)"             # in ~/.zshrc, after compinit',
    "fish": "espalier completion fish | source             # in ~/.config/fish/config.fish",
}


def add(commands: Any) -> None:
    p = commands.add_parser(
        "completion", help="a script that completes commands, recipes, stages and states with the Tab key"
    )
    p.add_argument("shell", choices=[*SCRIPTS, "words"], help="bash, zsh or fish; `words` is what the scripts call")
    p.add_argument("typed", nargs="*", help=argparse.SUPPRESS)
    p.set_defaults(run=completion)


def completion(args: argparse.Namespace) -> int:
    if args.shell != "words":
        print(f"{SCRIPTS[args.shell]}# {WHERE[args.shell]}")
        return 0
    candidates = sorted(words(args.typed))
    if candidates:
        print("\n".join(candidates))
    return 0


def words(typed: list[str]) -> Iterable[str]:
    """Completions of the last word of `typed`, the words after `espalier`."""
    from flows.cli import parser

    top, commands = parser()
    *before, last = typed or [""]
    if not before:
        return [c for c in commands if c.startswith(last)]
    if before[0] not in commands:
        return []
    choices = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    own = choices[before[0]]._actions
    option = next((a for a in own if before[-1] in a.option_strings and a.nargs != 0), None)
    if option is not None:
        return [w for w in values(option) if w.startswith(last)]
    if last.startswith("-"):
        return [o for a in own for o in a.option_strings if o.startswith(last)]
    given = sum(not w.startswith("-") for w in before[1:])
    places = [a for a in own if not a.option_strings]
    place = places[min(given, len(places) - 1)] if places else None
    return [w for w in values(place) if w.startswith(last)] if place is not None else []


def values(action: argparse.Action) -> list[str]:
    """The possible values of an argument; [] for files and free text."""
    if action.choices:
        return [str(c) for c in action.choices]
    kinds = {
        "recipe": _recipes,
        "name": _recipes,
        "stage": _stages,
        "family": _families,
        "model": _models,
        "a": _states,
        "b": _states,
        "of": _states,
    }
    find = kinds.get("family" if action.metavar == "FAMILY" else action.dest)
    return find() if find else []


def _recipes() -> list[str]:
    from tasks.planning.resolve import yaml_files

    return list(yaml_files("recipes"))


def _stages() -> list[str]:
    from tasks.runtime.stage import graph

    return list(graph(project()))


def _families() -> list[str]:
    from tasks.planning.pieces import files

    return list(files("family"))


def _models() -> list[str]:
    return ["base", "sft", "reward", "prefer", "rl", "champion"]


def _states() -> list[str]:
    from tasks.results.snapshots import experiments

    return ["workspace", "HEAD", "champion", *experiments(project())]
