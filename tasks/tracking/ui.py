"""MLflow's pages over a project's own store, on the loopback address, behind the guard of tasks/core/local.py.

By itself MLflow's server answers pages of every port of this machine and names of private networks, and knows no users;
its assistant runs commands. Here it requires the token of .espalier/mlflow.token, and runs no jobs.
"""

from __future__ import annotations

import os
from pathlib import Path

from tasks.core import local
from tasks.tracking import observe

TOKEN = ".espalier/mlflow.token"


def token(root: Path) -> str:
    """What MLflow's server of a project asks for, as `MLFLOW_TRACKING_TOKEN` of a client (docs/operations.md)."""
    return local.secret(root / TOKEN)


def serve(root: Path, store: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM. store: the database that holds the runs."""
    os.environ |= {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "_MLFLOW_SGI_NAME": "uvicorn",
    }
    from mlflow.server import constants

    # What `mlflow server` hands to the processes that it starts.
    artifacts = "mlflow-artifacts:/"
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: store,
        constants.REGISTRY_STORE_URI_ENV_VAR: store,
        constants.ARTIFACT_ROOT_ENV_VAR: artifacts,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: str(root / "mlartifacts"),
    }
    from mlflow.server.handlers import initialize_backend_stores

    with observe.refusals(root):
        initialize_backend_stores(store, store, artifacts)
    from mlflow.server.fastapi_app import app

    # An artifact may be a model of any size, and only who has the token sends one.
    local.run(local.Guard(app, token=token(root), max_body=None), port=port)  # type: ignore[arg-type]
