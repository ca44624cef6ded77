"""The stage `plan`: one file of resolved parameters per stage (tasks/planning/resolve.py says how they are resolved).

A plan file holds what can change the result of its stage and nothing else: parameters, seed, and the digest of every
source file in the stage's import closure, its pieces included; a module that a stage imports only if a knob is set
counts only then (the stage's constant ONLY_WITH, module -> knob), and never if that is a knob of place. DVC compares the file, so only the stages that a
change affects run again. Nothing heavy is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from synth.types import digest
from tasks.core.at_rest import files_at_rest
from tasks.core.paths import folders, project
from tasks.planning import code as src
from tasks.planning import estimate, parts, places
from tasks.core.config import read_yaml
from tasks.core.errors import UserError
from tasks.planning.pieces import locate, observed
from tasks.planning.resolve import check_asked, check_params, resolve
from tasks.storage import commit
from tasks.storage.faults import fault


@files_at_rest()
def plans(
    root: Path, changed: Callable[[dict[str, Any]], dict[str, Any]] | None = None, *, to_run: bool = True
) -> dict[str, dict[str, Any]]:
    """Stage -> the content of its plan file, from params.yaml of `root`; under "_run" what concerns the whole run.
    Raises UserError.

    changed: params.yaml -> content to use in its place, for a run that has not been started (`espalier run --set`,
    `espalier show`). to_run: whether settings that a recipe requires of the user must be present.
    """
    path = root / "params.yaml"
    outside = changed and not (root / "dvc.yaml").exists()  # `espalier show` explains a recipe in any folder
    written_params = {} if outside and not path.exists() else read_yaml(path)
    params = check_params(changed(written_params) if changed else written_params, path)
    stages, profile = resolve(params)
    if to_run:
        check_asked(params["recipe"], stages)
        parts.check(stages)
    first: dict[str, set[Path]] = {}
    needs: dict[str, list[str]] = {}
    known = src.Imports()
    for s in stages.values():
        flow = [f / f"{s.name}.py" for f in folders("flows") if (f / f"{s.name}.py").exists()]
        only = src.constant(s.path, "ONLY_WITH", {})
        unused = [module for module, knob in only.items() if s.knobs[knob.partition(".")[0]].place or not s.value(knob)]
        own = [locate(folder, name) for _, folder, name in s.used]
        needs_of = [(folder, src.constant(locate(folder, name), "NEEDS", ())) for _, folder, name in s.used]
        needs[s.name] = sorted({n for _, names in needs_of for n in names})
        own += [
            locate("observation", name)
            for name in sorted({n for folder, names in needs_of for n in observed(folder, names)})
        ]
        start = [*src.imported(s.path, known, unused), *flow, *own]
        first[s.name] = {s.path, *src.closure(start, known)}
    spoken = {t for paths in first.values() for p in paths for t in src.source(p).names} | set(
        _texts({n: s.params for n, s in stages.items()})
    )
    out: dict[str, dict[str, Any]] = {}
    for s in stages.values():
        paths = src.opened(first[s.name], spoken, known)
        sources = {src.name_of(p): src.digest(p)[:16] for p in sorted(paths)}
        out[s.name] = {
            "stage": s.name,
            "seed": params["seed"],
            "params": {k: v for k, v in s.params.items() if not s.knobs[k].place},
            "pieces": s.pieces,
            **({"settings": s.settings} if s.settings else {}),
            "needs": needs[s.name],
            "sources": dict(sorted(sources.items())),
        }
        if "recipe" in s.touched:
            out[s.name]["recipe"] = params["recipe"]
        # the stages that a profile affects, and the report, whose page names it
        if "profile" in s.touched or s.name == "report" or any(n.startswith("training/") for n in sources):
            out[s.name] |= {"profile": params["profile"], "threads": profile.get("threads", 2)}
    out["_run"] = {k: params[k] for k in ("recipe", "profile", "seed")}
    if placed := places.of(stages):
        out["_run"]["place"] = placed
    if to_run:
        _check_layers(out)
        _check_measured(out, root)
    return out


def _check_measured(plans: Mapping[str, Mapping[str, Any]], root: Path) -> None:
    """Raises UserError if the project's `evaluate` would read the model of a policy that writes no text, after all that
    comes before it has run."""
    path = root / "dvc.yaml"
    if not path.exists() or not {"rl", "evaluate"} <= plans.keys() or plans["rl"]["params"]["control"] is None:
        return
    stages = read_yaml(path).get("stages")
    measured = stages.get("evaluate") if isinstance(stages, dict) else None
    deps = measured.get("deps") if isinstance(measured, dict) else None
    if "artifacts/rl" in (deps or ()) and "rl" in plans["evaluate"]["params"]["models"]:
        raise UserError(
            f"rl.control is {plans['rl']['params']['control']['piece']}, whose policy writes no text, and the stage evaluate of {path} would "
            "measure it as a language model: `espalier init --control DIR` makes a project of the stages that such a policy needs "
            "(docs/control.md)"
        )


def _check_layers(plans: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises UserError for a decoder of a layer that the trained models will not have, before anything is trained."""
    if not {"sft", "evaluate"} <= plans.keys():
        return
    named = [
        (i, d["layer"])
        for i, d in enumerate(plans["evaluate"]["params"]["decoders"])
        if isinstance(d.get("layer"), int)
    ]
    sft, known = plans["sft"]["params"], estimate.size(plans) if named else None
    if sft["model"] and known is None:
        return  # no layer is named, or the model's files are not here yet
    n = sft["layers"] if known is None else known.layers
    for i, layer in named:
        if not -n <= layer < n:
            raise UserError(
                f"evaluate.decoders[{i}] names the layer {layer}, and the model that sft trains has {n}: name 0 to {n - 1}, "
                f"or -1 to -{n} from the end"
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.replace("-", "_")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def text(plan: Mapping[str, Any]) -> str:
    return json.dumps(plan, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def changes(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, old value, new value) of every leaf in which two plans differ; None means absent."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from changes(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    elif old != new:
        yield at, old, new


def written(root: Path) -> dict[str, dict[str, Any]]:
    """Stage -> its plan on disk, without plans that were edited since."""
    folder, out = root / "artifacts" / "plan", {}
    for path in sorted(p for p in folder.glob("*.json") if p.name != commit.MANIFEST):
        with suppress(commit.Damaged):  # treated as unplanned: the next run writes it anew
            out[path.stem] = commit.read_json(folder, path.name)
    return out


def write(root: Path | None = None) -> str:
    """Writes artifacts/plan/<stage>.json for every stage, and returns the digest of all. The same input gives the same
    bytes."""
    root = root or project()
    resolved = plans(root)
    folder = root / "artifacts" / "plan"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.json"):
        if stale.stem not in resolved:
            stale.unlink()
    fault("plan.write")
    for name, plan in resolved.items():
        (folder / f"{name}.json").write_text(text(plan), encoding="utf-8")
    commit.seal(folder)
    return digest(resolved)[:16]
