"""Promotion: register the trained model once per digest, and move the alias `champion` to it where it is better on the held-out set.

Better is a claim about the same problems: the paired difference of mean scores (training/evaluate/paired.py) has an
interval above zero. Where the held-out set is another than the champion's the two cannot be compared, and the alias
stays. The scores of a version are kept beside it, so that its successors can be compared.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet

from tasks import dvc, observe, spool
from tasks.errors import UserError
from tasks.stage import file_digest
from training.evaluate.paired import paired

NAME, ALIAS = "espalier", "champion"


def promote(root: Path, *, model: str = "rl", force: bool = False) -> str:
    """Register artifacts/<model>/model, decide about the alias, close the parent run, and say all that in one line.

    Raises UserError where there is nothing to promote, where tracking is off, or where MLflow cannot be reached.
    """
    folder = root / "artifacts" / model / "model"
    if not folder.is_dir() or not (root / "artifacts" / "evaluate" / "scores.parquet").exists():
        raise UserError(f"{folder} has not been trained and evaluated yet: `espalier run` first")
    if not spool.tracking(root):
        raise UserError("params.yaml says `tracking: off`, and the registry of models is MLflow's: set it to `local`")
    from mlflow.exceptions import MlflowException

    with observe.shipping(root, 60.0) as ship:
        if ship is None:
            raise UserError("another process is still shipping events to MLflow: run `espalier promote` again when it has ended")
        ship.all()
        if ship.problem:
            raise UserError(
                f"MLflow at {observe.uri(root)} does not take the events of the run ({ship.problem}): see that it runs, then "
                "`espalier promote` again"
            )
        try:
            return _promote(root, ship, folder, model, force)
        except MlflowException as e:
            raise UserError(f"MLflow at {observe.uri(root)} refused: {' '.join(str(e).split())[:300]}") from None


def _promote(root: Path, ship: observe.Shipping, folder: Path, model: str, force: bool) -> str:
    client, scores, held_out = ship.client, held_out_scores(root, model), _card(root)["held_out"]
    run = ship.close(spool.latest(root), dvc.lock_digest(root))
    version = _register(client, folder, model, run, scores, held_out)
    name = f"{NAME} version {version.version} ({model})"
    champion = _champion(client)
    if champion is not None and champion.version == version.version:
        return f"{name} is the {ALIAS} already"
    better, why = (True, "the first") if champion is None else _compare(client, champion, scores, held_out)
    client.set_tag(run, "espalier.promotion", f"{name}: {why}")
    if better or force:
        client.set_registered_model_alias(NAME, ALIAS, version.version)
        return f"{name} is now the {ALIAS}: {why}" + ("" if better else ", moved by --force")
    return f"{name} is registered; version {champion.version} stays the {ALIAS}: {why}"


def _card(root: Path) -> dict[str, Any]:
    return json.loads((root / "artifacts" / "evaluate" / "card.json").read_text(encoding="utf-8"))


def held_out_scores(root: Path, model: str) -> dict[str, list[float]]:
    """Problem id -> scores of the model's samples on the held-out questions (its run of the stage `evaluate`), NaN where unscorable."""
    table = pyarrow.parquet.read_table(root / "artifacts" / "evaluate" / "scores.parquet", columns=["run", "problem", "score"])
    out: dict[str, list[float]] = {}
    for row in table.to_pylist():
        if row["run"] == model:
            out.setdefault(row["problem"], []).append(float("nan") if row["score"] is None else row["score"])
    if not out:
        raise UserError(
            f"artifacts/evaluate holds no scores of the model {model!r}: add it to evaluate.models, or promote another with --model"
        )
    return dict(sorted(out.items()))


def _register(client: Any, folder: Path, model: str, run: str, scores: dict[str, list[float]], held_out: str) -> Any:
    """The version with this model's digest: found, or made."""
    from mlflow.exceptions import MlflowException

    digest = file_digest(folder)
    try:
        client.create_registered_model(NAME)
    except MlflowException as e:
        if e.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    same = [v for v in client.search_model_versions(f"name='{NAME}'") if v.tags.get("espalier.digest") == digest]
    if same:
        return same[0]
    place = f"models/{digest[:16]}"
    client.log_artifacts(run, str(folder), f"{place}/model")
    with tempfile.TemporaryDirectory() as t:
        path = Path(t) / "held_out.json"
        path.write_text(json.dumps(scores), encoding="utf-8")
        client.log_artifact(run, str(path), place)
    tags = {"espalier.digest": digest, "espalier.stage": model, "espalier.held_out": held_out}
    source = f"{client.get_run(run).info.artifact_uri}/{place}/model"
    return client.create_model_version(NAME, source=source, run_id=run, tags=tags)


def _champion(client: Any) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(NAME, ALIAS)
    except MlflowException:  # no such alias
        return None


def _compare(client: Any, champion: Any, scores: dict[str, list[float]], held_out: str) -> tuple[bool, str]:
    if champion.tags.get("espalier.held_out") != held_out:
        return False, "it was measured on another held-out set, so they cannot be compared (--force moves the alias)"
    with tempfile.TemporaryDirectory() as t:
        place = os.path.dirname(champion.source.split("/artifacts/", 1)[1])
        theirs = json.loads(Path(client.download_artifacts(champion.run_id, f"{place}/held_out.json", t)).read_text(encoding="utf-8"))
    common = sorted(scores.keys() & theirs.keys())
    d = paired([scores[p] for p in common], [theirs[p] for p in common])["difference"]
    said = f"difference to version {champion.version} on {d['n']} held-out questions {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
    return d["low"] > 0, said
