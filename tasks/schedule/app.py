"""`python -m tasks.schedule.app PORT`: Prefect's server on the loopback address, behind the guard of
tasks/core/local.py.

By itself it answers every origin and every host, and beside it a worker runs what it is told to: any web page could.
Its password and its protection against forged requests are settings, which `tasks.schedule.server` makes.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from tasks.core import local

KEEP = "prefect-password"  # where Prefect's pages keep what they send: prefect/server/ui, localStorage
PASSWORD = "PREFECT_SERVER_API_AUTH_STRING"


def settings(auth: str, address: str) -> dict[str, str]:
    """The environment variables of the server. auth: user:token; address: http://127.0.0.1:PORT.
    (prefect/settings/models/server/api.py)"""
    return {
        PASSWORD: auth,
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": address,
        "PREFECT_UI_API_URL": f"{address}/api",
    }


def lock_first() -> None:
    """Let the task that every poll of a worker begins, `mark_deployments_ready`, take SQLite's lock for writing when it
    begins. Up to Prefect 3.8 it reads first, another poll writes meanwhile, and it fails at once with "database is
    locked", five times over, a traceback each (https://github.com/PrefectHQ/prefect/pull/22967).

    Raises RuntimeError where that task was imported by name already: it would go on failing."""
    if any(name.startswith("prefect.server.api.") for name in sys.modules):
        raise RuntimeError("prefect.server.api is imported already")
    from prefect.server.models import deployments

    plain = deployments.mark_deployments_ready

    @functools.wraps(plain)
    async def mark_deployments_ready(*, db: Any, **more: Any) -> None:
        locking: Any = _Locking(db)
        await plain(db=locking, **more)

    deployments.mark_deployments_ready = mark_deployments_ready  # type: ignore[assignment]


class _Locking:
    """Prefect's database, whose transactions begin with the lock for writing."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def session_context(self, **more: Any) -> Any:
        return self._db.session_context(**{**more, "with_for_update": True})


def main(port: int) -> None:
    """Serves until SIGTERM."""
    from prefect.logging.configuration import setup_logging

    lock_first()
    from prefect.server.api.server import create_app

    setup_logging()
    user, _, token = os.environ[PASSWORD].partition(":")
    # One name, not every one of the loopback address: its pages ask the address of PREFECT_UI_API_URL.
    app = local.Guard(create_app(final=True), hosts=("127.0.0.1",), token=token, user=user, keep=KEEP)  # type: ignore[arg-type]
    local.run(app, port=port, level="info")


if __name__ == "__main__":
    main(int(sys.argv[1]))
