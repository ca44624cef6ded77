"""Observation: every event goes to a local spool first; MLflow gets it from there, or later, or never, and no stage waits for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks import process
from tasks.stage import Stage

EXECUTION = "ESPALIER_EXECUTION"  # set by `espalier run` and `pipeline`: what belongs to one parent run


def execution() -> str:
    """The name of this execution: given by the environment, or, below a plain `dvc repro`, made from the dvc process, or from this one."""
    if os.environ.get(EXECUTION):
        return os.environ[EXECUTION]
    chain = process.starters() if "DVC_ROOT" in os.environ else []
    head = chain[-1] if chain else process.look(os.getpid())
    assert head is not None  # this process, and the one that runs it, are alive
    return f"{head.name}-{head.pid}-{head.started}".replace(" ", "_").replace("/", "_")


@contextmanager
def recording(stage: Stage) -> Iterator[None]:
    """Spool the events of `stage`."""
    path = stage.root / ".espalier" / "spool" / execution() / f"{stage.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as spool:

        def emit(event: dict[str, Any]) -> None:
            spool.write(json.dumps({"time": int(time.time() * 1000), **event}, ensure_ascii=False) + "\n")
            spool.flush()

        stage.emit = emit
        emit({"kind": "begin", "identity": stage.identity})
        yield
        emit({"kind": "end"})
