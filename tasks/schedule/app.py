"""`python -m tasks.schedule.app PORT`: Prefect's server on the loopback address, behind the guard of
tasks/core/local.py.

By itself it answers every origin and every host, and beside it a worker runs what it is told to: any web page could.
Its password and its protection against forged requests are settings, which `tasks.schedule.server` makes.
"""

from __future__ import annotations

import os
import sys

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


def main(port: int) -> None:
    """Serves until SIGTERM."""
    from prefect.logging.configuration import setup_logging
    from prefect.server.api.server import create_app

    setup_logging()
    user, _, token = os.environ[PASSWORD].partition(":")
    # One name, not every one of the loopback address: its pages ask the address of PREFECT_UI_API_URL.
    app = local.Guard(create_app(final=True), hosts=("127.0.0.1",), token=token, user=user, keep=KEEP)  # type: ignore[arg-type]
    local.run(app, port=port, level="info")


if __name__ == "__main__":
    main(int(sys.argv[1]))
