"""Resolves signatures, profile, recipe and `set:` into every knob of every stage, or refuses with one sentence.

Precedence: defaults in the signatures of tasks/stages/*.py < flows/profiles/<profile>.yaml <
flows/recipes/<recipe>.yaml (what it extends first) < `set:` of params.yaml. A piece is replaced as a whole, with its
knobs; a mapping without the key `piece` changes knobs of the current piece. Grouped knobs (`optimizer`, `sampling`,
`critic`, `engine`) are merged field by field.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tasks.core.at_rest import files_at_rest, once_at_rest
from tasks.core.errors import UserError, nearest
from tasks.core.paths import folders
from tasks.planning import code as src
from tasks.core.config import read_yaml
from tasks.planning.former import misplaced
from tasks.planning.pieces import files, locate

PARAMS = {
    "recipe": str,
    "profile": str,
    "seed": int,
    "set": dict,
    "instructions": dict,
    "tracking": str,
    "disk_gb": int,
}
RECIPE = {
    "id",
    "title",
    "citation",
    "source",
    "mechanism",
    "leaves_out",
    "extends",
    "stages",
    "checks",
    "behaviour",
    "on_task",
    "asks",
    "shown",
}
PROFILE = {"title", "threads", "stages", "instructions"}
ENV = "env"  # the kind of pieces that may give a model instructions
# The user's rows enter at the stage that makes rows, so that later stages treat them like its own; setting them under
# the stage that learns from them means the same.
DOORS = {"sft": "demonstrations", "rl": "problems", "prefer": "preferences", "reward": "preferences"}
DOOR_KNOBS = ("files", "mix", "protect")
OWN_PAIRS = "preference-cleaning"  # the recipe that judges the user's own pairs
# Former knobs -> the knob, or the field of a grouped knob, that replaced them; where stages differ, one after another.
# Two names for one value would drift apart, so the old name is refused, and the message names the new one.
MOVED = {
    "families": "include_families",
    "recompute": "gradient_checkpointing",
    "guides": "group_transforms",
    "surrogate": "policy_loss",
    "lanes": "engine.concurrent_batches",
    "k": "sampling.search_top_k search_top_k",
    "optimizer": "optimizer.kind",
    **{name: f"optimizer.{name}" for name in "lr matrix_lr warmup decay weight_decay max_grad_norm".split()},
    **{name: f"sampling.{name}" for name in "temperature top_p max_turn_tokens max_tokens search_top_k".split()},
    "critic": "critic.loss",
    "critic_lr": "critic.lr",
    "critic_lambda": "critic.lam",
    "critic_warmup": "critic.warmup",
    "engine": "engine.name",
    "engine_memory": "engine.memory",
    "concurrent_batches": "engine.concurrent_batches",
    "tool_calls": "engine.tool_calls",
}
MOVED_STAGES = {"trajectories": "demonstrations"}
MOVED_IN_PIECES = {"external": "off_policy", "behaviour": "sampling_logp"}
MOVED_IN_RECIPES = {"certainty": "source"}
MOVED_SOURCES = {"known": "secondary"}  # former values of `source`


@dataclass
class Layer:
    """Values for knobs of stages, and their origin `where`, which begins every message about them."""

    where: str
    stages: Mapping[str, Any]


@dataclass
class Resolved:
    """One stage with all knobs; `pieces` maps a knob to its folder, `settings` maps a grouped knob to its class, `used`
    lists (knob, folder, name) of every piece in use. A field of a grouped knob has a dotted name, and so has a piece of
    one policy among several (`policies.solver.advantage`)."""

    name: str
    path: Path
    knobs: dict[str, src.Knob]
    params: dict[str, Any] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    @property
    def pieces(self) -> dict[str, str]:
        out = {name: knob.piece for name, knob in src.leaves(self.knobs) if knob.piece}
        for knob in (k for k in self.knobs.values() if k.own):
            for who, given in self.params[knob.name].items():
                out |= {f"{knob.name}.{who}.{name}": self.knobs[name].piece for name in knob.own if name in given}
        return out

    @property
    def settings(self) -> dict[str, str]:
        return {k.name: k.kind for k in self.knobs.values() if k.kind}

    @property
    def used(self) -> Iterator[tuple[str, str, str]]:
        for knob, folder in self.pieces.items():
            value = self.value(knob)
            for one in value if isinstance(value, list) else [value] if value is not None else []:
                yield knob, folder, one["piece"]

    def value(self, name: str) -> Any:
        """The value of a knob; a dotted name (`critic.loss`) is a field of a grouped knob."""
        return src.lookup(self.params, name)


@once_at_rest
def yaml_files(dotted: str) -> dict[str, Path]:
    """Name -> file of all `recipes` (`core/` first) or `profiles`, the user's own included. Two files of one name are
    refused."""
    out: dict[str, Path] = {}
    for place in folders(dotted):
        for name, path in _named_yaml(tuple(f"{at}/{name}" for at, _, names in os.walk(place) for name in names)):
            if name in out:
                raise UserError(f"{path} and {out[name]} have the same name: rename yours")
            out[name] = path
    return out


@cache
def _named_yaml(files: tuple[str, ...]) -> list[tuple[str, Path]]:
    """(name, file) of the YAML files among these, in order. Cached, because recipes that extend each other look them up
    repeatedly."""
    return [(path.stem, path) for path in sorted(Path(f) for f in files if f.endswith(".yaml"))]


def _named(dotted: str, name: str, what: str) -> Path:
    known = yaml_files(dotted)
    for spelling in (name, name.replace("_", "-"), name.replace("-", "_")):
        if spelling in known:
            return known[spelling]
    listed = " (`espalier recipes` lists them)" if what == "recipe" else ""
    near = misplaced(dotted, f"{name}.yaml") or f"{nearest(name, known)}{listed}"
    raise UserError(f"there is no {what} {name!r}: {near}")


def _section(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where} must hold keys and values, not {value!r}")
    return value


def read_recipe(name: str) -> dict[str, Any]:
    """Reads a recipe's file and checks its keys."""
    path = _named("recipes", name, "recipe")
    recipe = read_yaml(path)
    for key, value in recipe.items():
        if new := MOVED_IN_RECIPES.get(key):
            raise UserError(f"{path}: {key} is {new} now: write {new}: {MOVED_SOURCES.get(str(value), value)}")
        if key not in RECIPE:
            raise UserError(f"{path}: unknown key {key!r}: {nearest(key, RECIPE)}")
    return recipe


def recipe_layers(name: str) -> list[Layer]:
    """The layers of a recipe, those of the recipe that it extends first. Raises UserError if recipes extend each other
    in a circle."""
    layers: list[Layer] = []
    seen: list[str] = []
    while name:
        if name in seen:
            raise UserError(
                f"the recipes {' -> '.join([*seen, name])} extend each other in a circle: remove one `extends`"
            )
        seen.append(name)
        recipe = read_recipe(name)
        where = f"recipe {name}: stages"
        layers.insert(0, Layer(where, _section(recipe.get("stages"), where)))
        name = recipe.get("extends") or ""
    return layers


def asks(name: str) -> dict[str, str]:
    """What a recipe requires of the user: knob ("rl.teacher") -> what it is. The requirements of the recipe that it
    extends come first."""
    wanted: dict[str, str] = {}
    while name:
        recipe = read_recipe(name)
        wanted = {**(recipe.get("asks") or {}), **wanted}
        name = recipe.get("extends") or ""
    return wanted


def check_asked(recipe: str, stages: Mapping[str, Resolved]) -> None:
    """Raises UserError if a recipe requires something of the user that is not set."""
    for at, what in asks(recipe).items():
        stage, _, knob = at.partition(".")
        if not stages[stage].value(knob):
            raise UserError(
                f"the recipe {recipe} needs {what}, without which it teaches nothing: set {at} in params.yaml, under "
                f"`set: {{{stage}: {{{knob}: ...}}}}`"
            )


def check_params(params: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Checks keys and types of the content of params.yaml, and fills in defaults."""
    for key, value in params.items():
        if key not in PARAMS:
            raise UserError(f"{path}: unknown key {key!r}: {nearest(key, PARAMS)}")
        if value is not None and (not isinstance(value, PARAMS[key]) or isinstance(value, bool)):
            raise UserError(f"{path}: {key} must be a {PARAMS[key].__name__}, not {value!r}")
    return {"recipe": "", "profile": "cpu", "seed": 0, "set": {}, "instructions": {}, "tracking": "local"} | {
        k: v for k, v in params.items() if v is not None
    }


def overlaid(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two layers of knobs of one stage: the later value counts, and grouped knobs are merged field by field, as
    in `resolve`."""
    nested = {k.name for path in files("stage").values() for k in src.knobs(path).values() if k.fields}
    both = {k for k in nested & first.keys() & then.keys() if isinstance(then[k], Mapping)}
    return {**first, **then, **{k: {**first[k], **then[k]} for k in both}}


@files_at_rest()
def resolve(params: Mapping[str, Any]) -> tuple[dict[str, Resolved], dict[str, Any]]:
    """Every stage with all its knobs, and the profile. `params` is what `check_params` returns. Raises UserError."""
    stages = {n: Resolved(n, p, src.knobs(p)) for n, p in files("stage").items()}
    for stage in stages.values():
        _defaults(stage)
    profile = read_yaml(_named("profiles", params["profile"], "profile"))
    for key in profile:
        if key not in PROFILE:
            raise UserError(f"profile {params['profile']}: unknown key {key!r}: {nearest(key, PROFILE)}")
    where = f"profile {params['profile']}: stages"
    layers = [("profile", Layer(where, _section(profile.get("stages"), where)))]
    layers += [("recipe", layer) for layer in recipe_layers(params["recipe"])]
    layers += [("set", Layer("params.yaml: set", params["set"]))]
    given: set[tuple[str, str]] = set()
    for kind, layer in layers:
        for name, values in layer.stages.items():
            if name not in stages and MOVED_STAGES.get(name) in stages:
                raise UserError(
                    f"{layer.where}: the stage {name} is {MOVED_STAGES[name]} now: write {MOVED_STAGES[name]}: ..."
                )
            if name not in stages:
                raise UserError(f"{layer.where}: unknown stage {name!r}: {nearest(name, stages)}")
            for knob, value in _section(values, f"{layer.where}.{name}").items():
                reader = stages[DOORS[name]] if knob in DOOR_KNOBS and name in DOORS else stages[name]
                _apply(stages, reader, knob, value, f"{layer.where}.{name}.{knob}")
                reader.touched.add(kind)
                given.add((name, knob))
    _own_problems(stages, given)
    _own_pairs(stages, given)
    _measured_where_played(stages, given)
    where = f"profile {params['profile']}: instructions"
    general = _section(profile.get("instructions"), where)
    _instruct(stages, params["instructions"], "params.yaml: instructions")
    _instruct(stages, {k: v for k, v in general.items() if k not in params["instructions"]}, where)
    _agree(stages)
    for stage in stages.values():
        _combine(stage)
    return stages, profile


def _environments(stages: Mapping[str, Resolved]) -> Iterator[tuple[Resolved, str, dict[str, Any]]]:
    """(stage, knob, environment) of every environment that a stage names."""
    for stage in stages.values():
        for knob in stage.knobs.values():
            if knob.piece == ENV:
                yield from ((stage, knob.name, one) for one in stage.params[knob.name] or ())


def _instruct(stages: Mapping[str, Resolved], told: Mapping[str, Any], where: str) -> None:
    """Gives every environment of that name its instructions, in all stages whose own knob gives it none."""
    for name, text in told.items():
        try:
            known = src.knobs(locate(ENV, name))
        except UserError as e:
            raise UserError(f"{where}: {e}") from None
        if "instructions" not in known or not isinstance(text, str):
            raise UserError(f"{where}.{name} must be a text, and {name} an environment that takes instructions")
        for stage, _, one in _environments(stages):
            if one["piece"] == name.replace("-", "_") and not one["instructions"]:
                one["instructions"] = text
                stage.touched.add("profile")


def _agree(stages: Mapping[str, Resolved]) -> None:
    """Raises UserError if two stages would show a model the same problem in different words."""
    knobs_of: dict[str, tuple[str, str]] = {}
    for stage, knob, one in _environments(stages):
        at, text = f"{stage.name}.{knob}", one.get("instructions", "")
        first, other = knobs_of.setdefault(one["piece"], (at, text))
        if text != other:
            raise UserError(
                f"{at} gives the environment {one['piece']} other instructions than {first}: a model would be trained on other "
                f"prompts than it plays; write them once, in params.yaml under `instructions: {{{one['piece']}: ...}}`"
            )


def _own_problems(stages: Mapping[str, Resolved], given: Collection[tuple[str, str]]) -> None:
    """If the user has problems of their own, `rl` plays only these, plus generated ones if a mixture names them, unless
    params.yaml says otherwise."""
    if "rl" not in stages or "problems" not in stages:
        return
    if stages["problems"].params.get("files") or stages["problems"].params.get("external"):
        played = {"include_families": True, "include_questions": stages["problems"].params["mix"]}
        for knob, value in played.items():
            if ("rl", knob) not in given and knob in stages["rl"].knobs:
                stages["rl"].params[knob] = value


def _measured_where_played(stages: Mapping[str, Resolved], given: Collection[tuple[str, str]]) -> None:
    """Problems that `rl` learns from are measured too: unless somebody says where `evaluate` plays, it has the environments of `rl`
    that it lacks, as they are there."""
    if ("evaluate", "envs") in given or not {"rl", "evaluate"} <= stages.keys():
        return
    rl, evaluate = stages["rl"], stages["evaluate"]
    if "envs" in rl.knobs and "envs" in evaluate.knobs:
        has = {one["piece"] for one in evaluate.params["envs"]}
        more = [dict(one) for one in rl.params["envs"] if one["piece"] not in has]
        evaluate.params["envs"] = [*evaluate.params["envs"], *more]


def _own_pairs(stages: Mapping[str, Resolved], given: Collection[tuple[str, str]]) -> None:
    """The user's own pairs, and human decisions about pairs, are judged as `espalier clean` judges them (doubtful pairs
    are shown to a person, and a decision stands), unless params.yaml or the recipe names another judge."""
    if "clean" not in stages or ("clean", "cleaners") in given or ("clean", "policy") in given:
        return
    clean, pairs_stage = stages["clean"], stages.get("preferences")
    if clean.params.get("reviews") or (pairs_stage and pairs_stage.params.get("files")):
        for layer in recipe_layers(OWN_PAIRS):
            for knob, value in layer.stages["clean"].items():
                _apply(stages, clean, knob, value, f"{layer.where}.clean.{knob}")


def _defaults(stage: Resolved) -> None:
    stage.params |= copy.deepcopy(_of_file(stage.name, stage.path))


@once_at_rest
def _of_file(stage: str, path: Path) -> dict[str, Any]:
    """Knob -> default of a stage, complete: to be copied, not to be changed."""
    out: dict[str, Any] = {}
    for knob in src.knobs(path).values():
        where = f"{src.name_of(path)}: {knob.name}"
        start = dict.fromkeys(knob.fields) if knob.fields else None
        out[knob.name] = _value(stage, knob, knob.default, start, where)
    return out


def _apply(stages: Mapping[str, Resolved], stage: Resolved, name: str, value: Any, where: str) -> None:
    knob = stage.knobs.get(name)
    if knob is None and name in (renamed := src.constant(stage.path, "RENAMED", {})):
        raise UserError(f"{where}: {stage.name}.{name} has another name now: write {renamed[name]} in its place")
    if knob is None and (new := _moved(name, stage.knobs)):
        raise UserError(f"{where}: {stage.name}.{name} is {stage.name}.{new} now: write {_flow(new, value)}")
    if knob is None:
        elsewhere = [s.name for s in stages.values() if name in s.knobs]
        hint = (
            f"{' and '.join(elsewhere)} read{'s' if len(elsewhere) == 1 else ''} it, {stage.name} does not"
            if elsewhere
            else nearest(name, stage.knobs)
        )
        raise UserError(f"{where}: unknown key {name!r} of the stage {stage.name}: {hint}")
    value = _value(stage.name, knob, value, stage.params[name], where)
    stage.params[name] = _entries(stage, knob, value, where) if knob.own else value


def _value(stage: str, knob: src.Knob, value: Any, current: Any, where: str) -> Any:
    """The knob's value after the layer's `value` has been applied."""
    if knob.fields:
        return _nested(stage, knob, value, current, where)
    if knob.piece:
        return _piece_knob(knob, value, current, where)
    return _typed(knob, value, where)


def _nested(stage: str, knob: src.Knob, value: Any, current: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The given fields, merged over the current ones."""
    if not isinstance(value, Mapping) or "piece" in value:
        if knob.name in MOVED and value is not None:
            raise UserError(
                f"{where}: {stage}.{knob.name} holds several knobs now, and this one is {stage}.{MOVED[knob.name]}: "
                f"write {_flow(MOVED[knob.name], value)}"
            )
        raise UserError(f"{where} must hold keys and values ({', '.join(knob.fields)}), not {value!r}")
    out = dict(current)
    for name, one in value.items():
        if name not in knob.fields:
            raise UserError(f"{where}: unknown key {name!r} of {stage}.{knob.name}: {nearest(name, knob.fields)}")
        out[name] = _value(stage, knob.fields[name], one, out[name], f"{where}.{name}")
    return out


def _entries(stage: Resolved, knob: src.Knob, value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A mapping of names to settings, with all knobs of the pieces that an entry has for itself."""
    out = {}
    for name, given in value.items():
        if not isinstance(given, Mapping):
            raise UserError(
                f"{where}.{name} must hold keys and values, not {given!r}: write {name}: {{}} for the defaults"
            )
        if "." in name:
            raise UserError(
                f"{where}: the name {name!r} has a dot, which separates a name from its knobs: leave it out"
            )
        out[name] = dict(given)
        for own in knob.own:
            if own in given:
                out[name][own] = _piece_knob(stage.knobs[own], given[own], None, f"{where}.{name}.{own}")
    return out


def _moved(name: str, knobs: Mapping[str, src.Knob]) -> str | None:
    """The dotted name that a former knob has now in a stage with these knobs."""
    here = dict(src.leaves(knobs))
    return next((new for new in MOVED.get(name, "").split() if new in here), None)


def _flow(new: str, value: Any) -> str:
    """The new spelling of a moved knob, as a recipe writes it."""
    group, _, inner = new.partition(".")
    given = json.dumps(value, ensure_ascii=False)
    return f"{group}: {{{inner}: {given}}}" if inner else f"{group}: {given}"


def _typed(knob: src.Knob, value: Any, where: str) -> Any:
    if value is None and knob.default is None:
        return None
    wrong = src.mismatch(knob.annotation, value, knob.home)
    if wrong:
        raise UserError(f"{where} must be {wrong}, not {value!r}" + (f" ({knob.about})" if knob.about else ""))
    if wrong := src.odd_entry(knob, value):
        raise UserError(f"{where}{wrong}")
    if knob.place and isinstance(value, int) and value < 1:
        raise UserError(f"{where} must be 1 or more, not {value} ({knob.about})")
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 and src.counts(knob.annotation):
            raise UserError(f"{where} must be 0 or more, not {value}" + (f" ({knob.about})" if knob.about else ""))
        if isinstance(knob.default, float) and src.mismatch(knob.annotation, 0.5, knob.home) == "":
            return float(value)
        if abs(value) >= 2**63:
            raise UserError(f"{where} must be between -2^63 and 2^63, not {value}")
    return value


def _piece_knob(knob: src.Knob, value: Any, current: Any, where: str) -> Any:
    if knob.many:
        if not isinstance(value, list):
            raise UserError(f"{where} must be a list of pieces of {knob.piece}, not {value!r}")
        return [_spec(knob.piece, one, None, f"{where}[{i}]") for i, one in enumerate(value)]
    if value is None:
        if knob.default is not None:
            raise UserError(f"{where} must be a piece of {knob.piece}, not nothing: {nearest('', files(knob.piece))}")
        return None
    return _spec(knob.piece, value, current, where)


def _spec(folder: str, value: Any, current: Mapping[str, Any] | None, where: str) -> dict[str, Any]:
    """A piece with all its knobs, given as a text, as a mapping with the key `piece` (replaces the piece), or as
    changes to the current piece."""
    given = {"piece": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise UserError(
            f"{where} must name a piece of {folder} (a text, or a mapping with the key `piece`), not {value!r}"
        )
    base = given if "piece" in given else current
    if base is None:
        raise UserError(f"{where} must name a piece of {folder} under the key `piece`: {nearest('', files(folder))}")
    if not isinstance(base["piece"], str):
        raise UserError(f"{where}.piece must be the name of a piece of {folder}, not {base['piece']!r}")
    try:
        path = locate(folder, base["piece"])
    except UserError as e:
        raise UserError(f"{where}: {e}") from None
    known = src.knobs(path)
    start = {} if base is given else {k: v for k, v in base.items() if k != "piece"}
    out = {"piece": path.stem, **{k.name: k.default for k in known.values()}, **start}
    for name, one in given.items():
        if name == "piece":
            continue
        if name not in known:
            new = {**MOVED_IN_PIECES, **src.constant(path, "RENAMED", {})}.get(name)
            if new in known:
                raise UserError(f"{where}: {name} of {folder}/{path.stem} is {new} now: write {new}: {json.dumps(one)}")
            raise UserError(f"{where}.{name}: {_unread(folder, path.stem, name, known)}")
        out[name] = _typed(known[name], one, f"{where}.{name}")
    return out


def _unread(folder: str, piece: str, name: str, known: Mapping[str, Any]) -> str:
    readers = [n for n, p in files(folder).items() if n != piece and name in src.knobs(p)]
    if not readers:
        return f"unknown key {name!r} of {folder}/{piece}: {nearest(name, known)}"
    other = " and ".join(f"{folder}/{r}" for r in readers)
    return f"no piece in use reads it: the piece in use is {piece}; {other} would, so write `piece: {readers[0]}` beside it, or remove it"


def _combine(stage: Resolved) -> None:
    """Refuses pieces that cannot work together, with the reason and an alternative: MIN_GROUP, EXCLUDES and NEEDS of
    the pieces' files.

    PROVIDES of the stage says what a piece may need: a set of names, or name -> the knob that must be set for it ("":
    always there). The entry "observation" stands for every piece of that kind, and for a piece's own `observe`. A piece
    may provide more, in PROVIDES of its own file.
    """
    used = [(knob, folder, name, locate(folder, name)) for knob, folder, name in stage.used]
    names = {f"{folder}/{name}" for _, folder, name, _ in used}
    provided: Any = src.constant(stage.path, "PROVIDES", None)  # a set of names, or name -> knob
    observes = "observation" in (provided or ())
    if observes:
        knob_of = provided if isinstance(provided, dict) else dict.fromkeys(provided, "")
        provided = {k: v for k, v in knob_of.items() if k != "observation"} | dict.fromkeys(files("observation"), "")
    brought = {n for _, _, _, path in used for n in src.constant(path, "PROVIDES", ())}
    if provided is not None and brought:
        provided = provided | (dict.fromkeys(brought, "") if isinstance(provided, dict) else brought)
    for knob, folder, piece, path in used:
        least = src.constant(path, "MIN_GROUP", 1)
        samples = stage.params.get("samples_per_prompt")
        if samples is not None and samples < least:
            fits = [n for n, p in files(folder).items() if src.constant(p, "MIN_GROUP", 1) <= samples]
            raise UserError(
                f"{stage.name}: {folder}/{piece} compares at least {least} samples of a prompt, but samples_per_prompt is "
                f"{samples}: set {stage.name}.samples_per_prompt to {least} or more"
                + (f", or choose {stage.name}.{knob} among {', '.join(fits)}" if fits else "")
            )
        for other, why in src.constant(path, "EXCLUDES", {}).items():
            if other.replace("-", "_") in names:
                raise UserError(f"{stage.name}: {folder}/{piece} and {other} cannot be combined: {why}")
        if not observes and src.defines(path, "observe"):
            fits = [n for n, p in files(folder).items() if not src.defines(p, "observe")]
            raise UserError(
                f"{stage.name}: {folder}/{piece} has a function observe, and the stage {stage.name} plays no rollouts that "
                f"it could observe: choose {stage.name}.{knob} among {', '.join(fits)}, or use it in the stage rl"
            )
        needs = sorted(src.constant(path, "NEEDS", ()))
        for name in needs:
            other = provided.get(name) if isinstance(provided, dict) else ""
            if other and not stage.value(other):
                fits = [n for n, p in files(folder).items() if name not in src.constant(p, "NEEDS", ())]
                raise UserError(
                    f"{stage.name}: {folder}/{piece} needs {name}, which is there only where {stage.name}.{other} is set: set it to one of "
                    f"{', '.join(files(stage.pieces[other]))}, or choose {stage.name}.{knob} among {', '.join(fits)}"
                )
        if provided is None:
            continue
        lacking = [name for name in needs if name not in provided]
        if lacking:
            fits = [n for n, p in files(folder).items() if set(src.constant(p, "NEEDS", ())) <= set(provided)]
            raise UserError(
                f"{stage.name}: {folder}/{piece} needs {' and '.join(lacking)}, which the stage {stage.name} does not "
                f"compute (it computes: {', '.join(sorted(provided))})"
                + (f": choose {stage.name}.{knob} among {', '.join(fits)}" if fits else "")
                + "".join(f"; or add {{piece: {n}}} to {stage.name}.{k}" for k, n in _bringing(stage, lacking))
            )


def _bringing(stage: Resolved, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """(knob, piece) for every piece that would provide one of the names, if added to a stage's list of pieces."""
    for knob in stage.knobs.values():
        for piece, path in files(knob.piece).items() if knob.many else ():
            if set(names) & set(src.constant(path, "PROVIDES", ())):
                yield knob.name, piece
