"""docs/stages: a page per stage, from what the code itself says: its docstring, its knobs, what it reads and writes,
its pieces. And the tables of kinds in docs/recipes.md, from the declaration of each kind.

`make manual` writes them; tests/docs/test_guide.py fails where a page is not what this would write.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from tasks.core.paths import CODE as ROOT
from tasks.core.paths import package_of
from tasks.planning import code
from tasks.planning.kinds import NO_PIECES, declared, piece_kinds, slots, variants
from tasks.planning.pieces import files

PREVIEWED = ("kb", "questions", "problems", "demonstrations", "preferences", "clean")


def pages() -> dict[Path, str]:
    """File -> its text, for every stage of dvc.yaml and the list of them."""
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    folder = ROOT / "docs" / "stages"
    out = {folder / f"{name}.md": plan(entry) if name == "plan" else page(name, entry) for name, entry in graph.items()}
    rows = [f"| [{name}]({name}.md) | {entry.get('desc', '')} |" for name, entry in graph.items()]
    out[folder / "README.md"] = "\n".join(
        [
            "# Stages",
            "",
            "Which question this page answers: which stages are there, and what does each do?",
            "",
            "Written by `make manual` from the code.",
            "",
            "| stage | what it does |",
            "|---|---|",
            *rows,
            "",
        ]
    )
    recipes = ROOT / "docs" / "recipes.md"
    out[recipes] = filled(recipes.read_text(encoding="utf-8"))
    return out


def filled(text: str) -> str:
    """A page with what stands between `<!-- kinds:NAME -->` and `<!-- /kinds -->` written anew."""
    tables = {"pieces": kinds_table(), "checks": checks_table()}
    return re.sub(
        r"(<!-- kinds:(\w+) -->\n).*?(<!-- /kinds -->)", lambda m: m[1] + tables[m[2]] + m[3], text, flags=re.DOTALL
    )


def kinds_table() -> str:
    """A row per kind of pieces: where it lives, which knobs it is, what its function takes and returns."""
    lines = ["| kind | folder | knobs | function | result |", "|---|---|---|---|---|"]
    for name, variant in [(k, v) for k in piece_kinds() for v in variants(k)]:
        kind = declared(name, variant)
        knobs = [f"`{stage}.{knob}`" for stage, pieces in slots().items() for knob, k in pieces.items() if k == name]
        folder = kind.package.replace(".", "/")
        what = f"`{kind.signature}`: {_lower(kind.about)}"
        lines.append(f"| `{name}` | [{folder}](../{folder}) | {', '.join(knobs)} | {what} | {kind.returns} |")
    return _table(lines)


def checks_table() -> str:
    """A row per kind that recipes check: what a check gives, and what it may expect."""
    lines = ["| kind | `given` | `expect` |", "|---|---|---|"]
    for kind in map(declared, piece_kinds()):
        if kind.gives:
            sides = (
                "<br>".join(
                    f"`{name.lstrip('*')}`{' ...' if name[0] == '*' else ''}: {text}" for name, text in side.items()
                )
                for side in (kind.gives, kind.expects)
            )
            lines.append(f"| `{kind.name}` | {' | '.join(sides)} |")
    return _table(lines)


def _table(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def page(name: str, entry: dict) -> str:
    """The page of one stage."""
    path = files("stage")[name]
    tree = code.source(path).tree
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    summary = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    knobs = " ".join((ast.get_docstring(function) or "").partition("Args:\n")[0].split())
    lines = [
        f"# The stage `{name}`",
        "",
        f"Which question this page answers: what does the stage `{name}` do, and what does each of its knobs mean?",
        "",
        summary.partition(": ")[2][:1].upper() + summary.partition(": ")[2][1:] if ": " in summary else summary,
        "",
    ]
    lines += ["```sh", f"dvc repro {name}", *([f"espalier preview {name}"] if name in PREVIEWED else []), "```", ""]
    lines += ["## Reads and writes", "", *[f"- reads `{d}`" for d in entry.get("deps", [])]]
    lines += [f"- writes `{o if isinstance(o, str) else next(iter(o))}`" for o in entry.get("outs", [])] + [""]
    lines += ["## Knobs", "", f"Under `set: {{{name}: ...}}` in params.yaml, in a recipe or a profile.", ""]
    if knobs:
        lines += [knobs, ""]
    lines += ["| knob | type | default | what it is |", "|---|---|---|---|"]
    for knob in _listed(code.knobs(path)):
        kind = (
            f"{'pieces' if knob.many else 'a piece'} of [`{knob.piece}`](../../{package_of(knob.piece).replace('.', '/')})"
            if knob.piece
            else f"`{_type(knob)}`"
        )
        default = "" if knob.fields else f"`{json.dumps(knob.default, ensure_ascii=False)}`"
        lines.append(f"| `{knob.name}` | {kind} | {default} | {knob.about} |")
    folders = dict.fromkeys(k.piece for _, k in code.leaves(code.knobs(path)) if k.piece)
    for folder in folders:
        lines += ["", f"## Pieces of `{folder}`", ""]
        if folder not in NO_PIECES:
            kind = declared(folder)
            lines += [f"{kind.about} `{kind.signature}` returns {kind.returns}.", ""]
        lines += [f"- `{piece}`: {_first(at)}" for piece, at in files(folder).items()]
    return "\n".join(lines) + "\n"


def _listed(known: dict[str, code.Knob]) -> Iterator[code.Knob]:
    """Every knob; one of several is followed by its fields, under dotted names."""
    for knob in known.values():
        yield knob
        yield from (replace(one, name=f"{knob.name}.{inner}") for inner, one in knob.fields.items())


def plan(entry: dict) -> str:
    """The page of the stage `plan`, which has no knobs: the keys of params.yaml are what it reads."""
    summary = (ast.get_docstring(code.source(ROOT / "tasks/planning/plan.py").tree) or "").split("\n\n")
    about = " ".join(summary[1].split())
    lines = [
        "# The stage `plan`",
        "",
        "Which question this page answers: what does the stage `plan` do, and which keys does params.yaml have?",
        "",
        f"It comes first: {entry['desc']}.",
        "",
        "```sh",
        "dvc repro plan",
        "espalier run --dry-run    # what the plan would run, and why",
        "```",
        "",
        about,
        "",
        "## Reads and writes",
        "",
    ]
    lines += [
        "- reads `params.yaml`",
        *[f"- reads `{d}`" for d in entry["deps"]],
        *[f"- writes `{o}`" for o in entry["outs"]],
    ]
    lines += ["", "## Keys of params.yaml", "", "| key | meaning |", "|---|---|"]
    for line in (ROOT / "params.yaml").read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(\w+):.*?(?: +# (.*))?", line):  # not the values: they are the user's
            lines.append("| `{}` | {} |".format(*((x or "").replace("|", "\\|") for x in match.groups())))
    lines += [
        "",
        "Later wins: signatures of the stages < profile < recipe < `set:` < `espalier run --set`. An unknown key, or one that nothing in use "
        "reads, is refused with the nearest that is valid.",
    ]
    return "\n".join(lines) + "\n"


def _type(knob: code.Knob) -> str:
    return "any" if knob.annotation is None else ast.unparse(knob.annotation).replace("|", "or").strip("'\"")


def _first(path: Path) -> str:
    """The first sentence of a file's docstring."""
    text = " ".join((ast.get_docstring(code.source(path).tree) or "").split("\n\n")[0].split())
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    for file, text in pages().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    print(f"{len(pages())} pages in docs")
