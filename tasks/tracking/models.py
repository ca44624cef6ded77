"""Trained models on MLflow's page of models (its `LoggedModel`): each with the run that made it, the data that this run
read, and what the stage `evaluate` measured of it.

Which outputs are models and which are data says the section `artifacts` of dvc.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config import read_yaml
from tasks.runtime.stage import file_digest, graph

KEY = "espalier.identity"  # tag of a model: the identity of the output that holds it
JUDGE = "evaluate"  # the stage that evaluates models


def outputs(root: Path, kind: str, places: Sequence[str]) -> list[str]:
    """The artifacts of dvc.yaml of a type, `model` or `dataset`, that lie in one of `places` and are there."""
    path = root / "dvc.yaml"
    known = (read_yaml(path).get("artifacts") or {}).values() if path.exists() else ()
    inside = [a["path"] for a in known if a.get("type") == kind and any(a["path"].startswith(f"{p}/") for p in places)]
    return [p for p in inside if (root / p).exists()]


def log(client: Any, experiment: str, run: str, root: Path, stage: str, identities: Mapping[str, str]) -> None:
    """Log the model that `stage` has just written, the data that it learned from (of `evaluate`: the data that it
    measured with), with its run. What is there already is not logged again.

    identities: stage -> identity of its output.
    """
    from mlflow.entities import DatasetInput, InputTag, LoggedModelOutput

    edges = graph(root).get(stage, {})
    written = outputs(root, "model", edges.get("outs", []))
    if not written and stage != JUDGE:
        return
    context = [InputTag("mlflow.data.context", "eval" if stage == JUDGE else "training")]
    read = [DatasetInput(_dataset(root, p), context) for p in outputs(root, "dataset", edges.get("deps", []))]
    if read:
        client.log_inputs(run, datasets=read)
    if not written:
        return
    known = client.get_run(run)
    for path in written:
        model = _found(client, experiment, identities[stage]) or client.create_logged_model(
            experiment,
            name=stage,
            source_run_id=run,
            tags={KEY: identities[stage], "espalier.stage": stage, "espalier.path": path},
            params=dict(known.data.params),
        )
        if model.model_id not in {m.model_id for m in known.outputs.model_outputs}:
            client.log_outputs(run, [LoggedModelOutput(model.model_id, 0)])
        if str(model.status) != "READY":
            client.finalize_logged_model(model.model_id, "READY")


def measured(
    client: Any,
    experiment: str,
    run: str,
    root: Path,
    values: Mapping[str, Mapping[str, float]],
    identities: Mapping[str, str],
    at: int,
) -> None:
    """Log what was measured of each model (stage -> metric -> value) with it and with the run that made it, beside the
    questions that it was measured on; `run`, the one of `evaluate`, is told which models it read."""
    from mlflow.entities import LoggedModelInput, Metric

    seen = {m.model_id for m in client.get_run(run).inputs.model_inputs}

    data = [p for p in outputs(root, "dataset", graph(root).get(JUDGE, {}).get("deps", [])) if _stage(p) == "questions"]
    datasets = [_dataset(root, p) for p in data]
    about = {"dataset_name": datasets[0].name, "dataset_digest": datasets[0].digest} if datasets else {}
    for stage, metrics in values.items():
        model = _found(client, experiment, identities.get(stage, ""))
        if model is None:
            continue
        if model.model_id not in seen:
            client.log_inputs(run, models=[LoggedModelInput(model.model_id)])
        own = {"model_id": model.model_id, "run_id": model.source_run_id, **about}
        client.log_batch(model.source_run_id, metrics=[Metric(k, v, at, 0, **own) for k, v in metrics.items()])


def _stage(path: str) -> str:
    return path.split("/")[1]


def _found(client: Any, experiment: str, identity: str) -> Any:
    same = client.search_logged_models([experiment], filter_string=f"tags.`{KEY}` = '{identity}'", max_results=1)
    return same[0] if same else None


def _dataset(root: Path, path: str) -> Any:
    from mlflow.entities import Dataset

    source = f'{{"path": "{path}"}}'
    return Dataset(name=path, digest=file_digest(root / path)[:36], source_type="local", source=source)
