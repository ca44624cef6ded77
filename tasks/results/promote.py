"""Promotion: register the trained model once per digest, and move the alias `champion` to it if it is better on the
held-out set.

Better is a claim about the same problems: the paired difference of mean scores (training/metrics/paired.py) has an
interval above zero. The scores of a version are kept beside it, so that its successors can be compared. If the champion
was not measured on this held-out set, the two cannot be compared and the alias stays; `measure_champion` fixes that.
Every decision is an artifact of the run, gate.json.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


from tasks.core.errors import UserError, nearest
from tasks.runtime import dvc
from tasks.runtime.stage import REMEDY, file_digest
from tasks.storage import commit, tables
from tasks.tracking import observe, spool
from training.metrics.paired import paired

NAME, ALIAS = "espalier", "champion"
CHALLENGER = "challenger"  # alias of the version that was compared last and not promoted
# tag of the registered model: the versions that were champion and not rolled back, oldest first
REIGNS = "espalier.champions"
LOCK = "espalier.lock"  # tag of a version: the digest of the dvc.lock that is kept beside it
BACK = "espalier.rolled_back"  # tag of a version that was rolled back: only --force makes it champion again


def promote(root: Path, *, model: str = "rl", force: bool = False) -> str:
    """Registers artifacts/<model>/model, decides about the alias, closes the parent run, and returns one line about the
    result.

    Raises UserError if there is nothing to promote, if tracking is off, or if MLflow cannot be reached.
    """
    folder = root / "artifacts" / model / "model"
    if not folder.is_dir() or not (root / "artifacts" / "evaluate" / "scores.parquet").exists():
        raise UserError(f"{folder} has not been trained and evaluated yet: `espalier run` first")
    commit.check(folder.parent, "model", remedy=REMEDY)
    with _registry(root, "promote") as ship:
        message = _promote(root, ship, folder, model, force)
    observe.settle(root)
    return message


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A version of the registry: the stage that made it, the SHA-256 of its files, its run, commit, and the dvc.lock
    that it was made under."""

    version: str
    stage: str
    digest: str
    run: str
    commit: str
    lock: str
    aliases: tuple[str, ...]


def registered(root: Path, name: str) -> Registered:
    """The version that an alias (`champion`), a number (`3`, `v3`) or the id of its run names.

    Raises UserError where there is none, or where MLflow cannot be reached.
    """
    with observe.refusals(root):
        client = observe.client(root)
        known = client.search_model_versions(f"name='{NAME}'")
        named = {a: v for v in known for a in client.get_model_version(NAME, v.version).aliases}
        numbered = {str(v.version): v for v in known}
        version = (
            named.get(name)
            or numbered.get(name.removeprefix("v"))
            or next((v for v in known if v.run_id == name), None)
        )
        if version is None:
            raise UserError(
                f"the registry has no model {name!r}: {nearest(name, [*named, *numbered])} (`espalier promote` registers one)"
            )
        lock = ""
        if version.tags.get(LOCK):
            with tempfile.TemporaryDirectory() as t:
                try:
                    lock = _fetched(client, version, "dvc.lock", t).read_text(encoding="utf-8")
                except Gone as e:
                    at = client.get_run(version.run_id).data.tags.get("mlflow.source.git.commit", "")[:10] or "COMMIT"
                    raise UserError(
                        f"{e}: name its commit instead, `{at}` (of one stage: `{at}:{version.tags.get('espalier.stage', 'rl')}`)"
                    ) from None
        commit = client.get_run(version.run_id).data.tags.get("mlflow.source.git.commit", "")
        return Registered(
            version=str(version.version),
            stage=version.tags.get("espalier.stage", ""),
            digest=version.tags["espalier.digest"],
            run=version.run_id,
            commit=commit,
            lock=lock,
            aliases=tuple(a for a, v in named.items() if v is version),
        )


def rollback(root: Path) -> str:
    """Moves the alias back to its previous version. Raises UserError if there is none."""
    with _registry(root, "promote --rollback") as ship:
        client = ship.client
        champion = _champion(client)
        reigns = [] if champion is None else _reigns(client)
        earlier = (
            reigns[: reigns.index(str(champion.version))]
            if champion is not None and str(champion.version) in reigns
            else []
        )
        if champion is None or not earlier:
            raise UserError(
                f"no {ALIAS} came before the present one: `espalier ui` shows the versions of the model {NAME}"
            )
        client.set_model_version_tag(NAME, champion.version, BACK, "true")
        client.set_registered_model_alias(NAME, ALIAS, earlier[-1])
        client.set_registered_model_tag(NAME, REIGNS, ",".join(earlier))
        return f"{NAME} version {earlier[-1]} is the {ALIAS} again; version {champion.version} is not promoted any more, except by --force"


def measure_champion(root: Path) -> str:
    """Plays the current held-out questions with the champion and keeps its scores, so that other models can be compared
    with it."""
    with _registry(root, "promote --measure-champion") as ship:
        champion = _champion(ship.client)
        if champion is None:
            raise UserError(f"there is no {ALIAS} yet: `espalier promote` makes the first")
        who, held_out = f"{NAME} version {champion.version}", _card(root)["held_out"]
        if _kept(champion, held_out):
            return f"{who}, the {ALIAS}, is measured on the present held-out questions already"
        folder = root / ".espalier" / "work" / ALIAS / champion.tags["espalier.digest"][:16]
        model = folder / "artifacts" / "rl" / "model"
        if not model.is_dir() or file_digest(model) != champion.tags["espalier.digest"]:
            shutil.rmtree(folder, ignore_errors=True)
            model.parent.mkdir(parents=True)
            with tempfile.TemporaryDirectory(dir=folder) as t:
                try:
                    _fetched(ship.client, champion, "model", t).rename(model)
                except Gone as e:
                    raise UserError(f"{e}: `espalier promote --force` makes the present model the {ALIAS}") from None
            if file_digest(model) != champion.tags["espalier.digest"]:
                raise UserError(
                    f"the artifacts of {who} are not what was registered: they were changed or damaged in the store"
                )
        scores, held_out = _play(root, folder)
        _keep(ship.client, champion, scores, held_out)
        shutil.rmtree(folder)
        right = [x for values in scores.values() for x in values if not math.isnan(x)]
        return f"{who}, the {ALIAS}, is measured on {len(scores)} held-out questions: mean score {sum(right) / max(1, len(right)):.3f}"


def _play(root: Path, folder: Path) -> tuple[dict[str, list[float]], str]:
    """Runs the stage `evaluate` in a project of links in `folder`, with the champion in place of the RL model and no
    other model."""
    from tasks.planning import pieces
    from tasks.runtime.stage import Stage, load
    from tasks.stages.evaluate import evaluate
    from tasks.storage import commit

    for data in (
        "data",
        *(f"artifacts/{stage}" for stage in ("kb", "questions", "problems", "demonstrations", "clean", "reward")),
    ):
        link = folder / data
        if not link.exists() and (root / data).exists():
            link.symlink_to((root / data).resolve())
    commit.seal(folder / "artifacts" / "rl")
    stage = Stage("evaluate", plan=load("evaluate", root), root=folder)
    with stage.running():
        pieces.open_own()
        params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
        least = {"per_family": 1, "family_samples": 1, "blanked_samples": 1, "sets": [], "traces": 0}
        evaluate(stage, **{**params, "models": ["rl"], "against": "rl", **least})
    return held_out_scores(folder, "rl"), _card(folder)["held_out"]


@contextmanager
def _registry(root: Path, command: str) -> Iterator[observe.Shipping]:
    """A Shipping after all events are shipped. Raises UserError if tracking is off, or if MLflow cannot be reached or
    refuses."""
    if not spool.tracking(root):
        raise UserError("params.yaml says `tracking: off`, and the registry of models is MLflow's: set it to `local`")
    with observe.shipping(root, 60.0) as ship:
        if ship is None:
            raise UserError(
                f"another process is still shipping events to MLflow: run `espalier {command}` again when it has ended"
            )
        ship.all()
        if ship.problem:
            raise UserError(
                f"MLflow at {observe.uri(root)} cannot be reached ({ship.problem}): start it, then run `espalier {command}` again"
            )
        with observe.refusals(root):
            yield ship


def _promote(root: Path, ship: observe.Shipping, folder: Path, model: str, force: bool) -> str:
    client, scores, held_out = ship.client, held_out_scores(root, model), _card(root)["held_out"]
    lock = dvc.lock_digest(root)
    run = ship.close(spool.latest(root), lock)
    version = _register(client, folder, model, run)
    _keep(client, version, scores, held_out)
    _remember(client, version, root)
    name = f"{NAME} version {version.version} ({model})"
    champion = _champion(client)
    if champion is not None and champion.version == version.version:
        return f"{name} is the {ALIAS} already"
    better, why, numbers = _first(scores) if champion is None else _compare(client, champion, scores, held_out)
    above = _above_base(root, model, scores)
    if above and better:
        better, why = above["low"] > 0, f"{why}; {_said_of_base(above)}"
    if better and version.tags.get(BACK):
        better, why = False, f"it was rolled back before (--force moves the alias); {why}"
    if better or force:
        message = f"{name} is now the {ALIAS}: {why}" + ("" if better else ", moved by --force")
        reigns = [v for v in _reigns(client) if v != str(version.version)]
        client.set_registered_model_tag(NAME, REIGNS, ",".join([*reigns, str(version.version)]))
        client.set_model_version_tag(NAME, version.version, BACK, "")
        client.set_registered_model_alias(NAME, ALIAS, version.version)
        client.delete_registered_model_alias(NAME, CHALLENGER)
    else:
        client.set_registered_model_alias(NAME, CHALLENGER, version.version)
        stays = f"there is still no {ALIAS}" if champion is None else f"version {champion.version} stays the {ALIAS}"
        message = f"{name} is registered; {stays}: {why}"
    gate = {
        "model": model,
        "version": str(version.version),
        "digest": version.tags["espalier.digest"],
        "champion_before": str(champion.version) if champion else None,
        "promoted": better or force,
        "forced": force and not better,
        "why": why,
        "difference": numbers,
        "difference_to_base": above,
        "held_out": held_out,
        "dvc_lock": lock,
    }
    client.log_dict(run, gate, "gate.json")
    client.update_model_version(NAME, version.version, _description(root, message))
    client.set_tag(run, "espalier.promotion", message)
    return message


def _description(root: Path, evidence: str) -> str:
    """The description of a version: the decision, then the model card, if the report has written one."""
    card = root / "reports" / "model_card.md"
    text = card.read_text(encoding="utf-8").split("\n---\n", 1)[-1].strip() if card.exists() else ""
    return f"{evidence}\n\n{text}"[:5000]


def _reigns(client: Any) -> list[str]:
    return [v for v in client.get_registered_model(NAME).tags.get(REIGNS, "").split(",") if v]


def _card(root: Path) -> dict[str, Any]:
    return commit.read_json(root / "artifacts" / "evaluate", "card.json", remedy=REMEDY)


def held_out_scores(root: Path, model: str) -> dict[str, list[float]]:
    """Problem id -> scores of the model's samples on the held-out questions (its run of the stage `evaluate`), NaN for
    unscorable samples."""
    path = root / "artifacts" / "evaluate" / "scores.parquet"
    table = tables.raw(path, ["run", "problem", "score"])
    out: dict[str, list[float]] = {}
    for row in table.to_pylist():
        if row["run"] == model:
            out.setdefault(row["problem"], []).append(float("nan") if row["score"] is None else row["score"])
    if not out:
        raise UserError(
            f"artifacts/evaluate holds no scores of the model {model!r}: add it to evaluate.models, or promote another with --model"
        )
    return dict(sorted(out.items()))


def _register(client: Any, folder: Path, model: str, run: str) -> Any:
    """Finds or creates the version with this model's digest."""
    from mlflow.exceptions import MlflowException

    digest = file_digest(folder)
    try:
        client.create_registered_model(NAME)
    except MlflowException as e:
        if e.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    same = [v for v in client.search_model_versions(f"name='{NAME}'") if v.tags.get("espalier.digest") == digest]
    if same:
        there = _local(client, same[0].run_id, f"{_place(same[0])}/model")
        if there is not None and (not there.is_dir() or file_digest(there) != digest):
            print(f"warning: {there} is not what was registered: it is written anew", file=sys.stderr)
            commit.remove(there)
            client.log_artifacts(same[0].run_id, str(folder), f"{_place(same[0])}/model")
            _flush(client, same[0].run_id, f"{_place(same[0])}/model")
        return same[0]
    place = f"models/{digest[:16]}/model"
    client.log_artifacts(run, str(folder), place)
    _flush(client, run, place)
    source = f"{client.get_run(run).info.artifact_uri}/{place}"
    return client.create_model_version(
        NAME, source=source, run_id=run, tags={"espalier.digest": digest, "espalier.stage": model}
    )


def _local(client: Any, run: str, place: str) -> Path | None:
    """The path of a run's file or folder in MLflow's store, if that is on this machine."""
    at = urlparse(client.get_run(run).info.artifact_uri)
    return Path(unquote(at.path)) / place if at.scheme in ("", "file") else None


def _flush(client: Any, run: str, place: str) -> None:
    """Flushes files given to MLflow. MLflow does not do it, and the registry must not name a model that a power cut has
    destroyed."""
    path = _local(client, run, place)
    if path is None or not path.exists():
        return
    for p in (path, *path.rglob("*")):
        commit.flush(p)
    above = Path(unquote(urlparse(client.get_run(run).info.artifact_uri).path))
    for p in (*(p for p in path.parents if p.is_relative_to(above)), *above.parents[:3]):
        commit.flush(p)


def _remember(client: Any, version: Any, root: Path) -> None:
    """Stores the dvc.lock of a version beside it: together with DVC's cache it is the version's whole lineage."""
    path = root / "dvc.lock"
    if path.exists() and not version.tags.get(LOCK):
        client.log_artifact(version.run_id, str(path), _place(version))
        _flush(client, version.run_id, _place(version))
        client.set_model_version_tag(NAME, version.version, LOCK, dvc.lock_digest(root))


def _place(version: Any) -> str:
    """The folder of a version among the artifacts of its run."""
    return f"models/{version.tags['espalier.digest'][:16]}"


class Gone(Exception):
    """The artifact store no longer has a file of a version; the message says which."""


def _fetched(client: Any, version: Any, name: str, folder: str) -> Path:
    """Downloads a file or folder stored beside a version into `folder`. Raises Gone if it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        path = Path(client.download_artifacts(version.run_id, f"{_place(version)}/{name}", folder))
    except (MlflowException, OSError) as e:
        raise Gone(
            f"{name} of version {version.version} cannot be had from the artifacts of its run {version.run_id[:8]} (deleted, or out of reach)"
        ) from e
    return path


def _kept(version: Any, held_out: str) -> bool:
    return bool(version.tags.get(f"espalier.measured.{held_out[:16]}"))


def _keep(client: Any, version: Any, scores: dict[str, list[float]], held_out: str) -> None:
    """Stores the scores of a version on one held-out set beside its model."""
    if _kept(version, held_out):
        return
    with tempfile.TemporaryDirectory() as t:
        path = Path(t) / f"held_out-{held_out[:16]}.json"
        path.write_text(json.dumps(scores), encoding="utf-8")
        client.log_artifact(version.run_id, str(path), _place(version))
    _flush(client, version.run_id, _place(version))
    client.set_model_version_tag(NAME, version.version, f"espalier.measured.{held_out[:16]}", path.name)


def _champion(client: Any) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(NAME, ALIAS)
    except MlflowException as e:
        if e.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise  # no answer from the database does not mean that there is no champion
        return None


def _first(scores: dict[str, list[float]]) -> tuple[bool, str, dict[str, float]]:
    """Whether a model may be the first champion, in words, and its mean score. If the interval includes 0, its right
    answers may be chance."""
    score = dict(paired(list(scores.values()), [[0.0]] * len(scores))["difference"])
    evidence = (
        f"on {score['n']} held-out questions it scores {score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"
    )
    if score["low"] > 0:
        return True, f"the first, {evidence}", score
    return False, f"{evidence}, and an interval that includes 0 is no success (--force moves the alias)", score


BEFORE = ("base", "sft")  # the models of `evaluate` that others start from; the first that was measured is the base


def _above_base(root: Path, model: str, scores: dict[str, list[float]]) -> dict[str, Any]:
    """The paired difference to the model that this one started from, on the questions of both; {} if no such model was
    measured, or it is the model itself."""
    for name in BEFORE[: BEFORE.index(model)] if model in BEFORE else BEFORE:
        try:
            theirs = held_out_scores(root, name)
        except UserError:
            continue
        common = sorted(scores.keys() & theirs.keys())
        if common:
            return {
                "base": name,
                **paired([scores[p] for p in common], [theirs[p] for p in common])["difference"],
            }
    return {}


def _said_of_base(d: dict[str, Any]) -> str:
    words = (
        f"difference to the model {d['base']} that it started from {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
    )
    return words if d["low"] > 0 else f"{words}: it is not better than that (--force moves the alias)"


def _compare(
    client: Any, champion: Any, scores: dict[str, list[float]], held_out: str
) -> tuple[bool, str, dict[str, float]]:
    """Whether `scores` are better than the champion's, in words, and the paired difference."""
    if not _kept(champion, held_out):
        why = f"version {champion.version} was measured on another held-out set, so they cannot be compared"
        return (
            False,
            f"{why} (`espalier promote --measure-champion` measures it on this one; --force moves the alias)",
            {},
        )
    with tempfile.TemporaryDirectory() as t:
        try:
            theirs = json.loads(
                _fetched(client, champion, f"held_out-{held_out[:16]}.json", t).read_text(encoding="utf-8")
            )
        except Gone as e:
            return False, f"{e}, so they cannot be compared (--force moves the alias)", {}
    common = sorted(scores.keys() & theirs.keys())
    d = paired([scores[p] for p in common], [theirs[p] for p in common])["difference"]
    evidence = f"difference to version {champion.version} on {d['n']} held-out questions {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
    return d["low"] > 0, evidence, dict(d)
