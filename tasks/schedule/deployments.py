"""prefect.yaml: read, checked, and put on the server.

The file is Prefect's (`prefect deploy --all` takes it too). Here each entry is checked first, so that a mistake is a
sentence now and not a schedule that never fires, and the working directory is kept with the deployment.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.core.config import read_yaml
from tasks.schedule import server

KEYS = {
    "name",
    "entrypoint",
    "description",
    "parameters",
    "schedules",
    "tags",
    "work_pool",
    "concurrency_limit",
    "paused",
}


def read(root: Path) -> list[dict[str, Any]]:
    """The deployments of prefect.yaml, each with its `flow` and its `schedules` as Prefect's objects. Raises
    UserError."""
    path = root / "prefect.yaml"
    if not path.exists():
        raise UserError(f"{path} does not exist: it says what runs when; `espalier init` makes one")
    entries = read_yaml(path).get("deployments") or []
    if not entries:
        raise UserError(f"{path} holds no deployments: add one, or take the one of `espalier init`")
    return [_checked(entry, path) for entry in entries]


def _checked(entry: dict[str, Any], path: Path) -> dict[str, Any]:
    from prefect import Flow
    from prefect.exceptions import ParameterTypeError
    from prefect.utilities.importtools import import_object

    where = f"{path}, deployment {entry.get('name', '?')!r}"
    for key in entry.keys() - KEYS:
        raise UserError(f"{where}: unknown key {key!r}: {nearest(key, KEYS)}")
    for key in ("name", "entrypoint"):
        if not isinstance(entry.get(key), str):
            raise UserError(f"{where}: {key} is missing")
    entrypoint = entry["entrypoint"]
    if ":" in entrypoint or "/" in entrypoint:
        raise UserError(
            f"{where}: entrypoint {entrypoint!r} is a file path, where modules shadow each other: write flows.pipeline.pipeline"
        )
    try:
        flow = import_object(entrypoint)
    except (ImportError, AttributeError) as e:
        raise UserError(f"{where}: entrypoint {entrypoint!r} cannot be imported: {e}") from None
    if not isinstance(flow, Flow):
        raise UserError(
            f"{where}: {entrypoint} is not a flow: write flows.pipeline.pipeline or flows.champion.champion"
        )
    try:
        flow.validate_parameters(dict(entry.get("parameters") or {}))
    except ParameterTypeError as e:
        raise UserError(f"{where}: parameters: {' '.join(str(e).split())}") from None
    except TypeError as e:  # an argument that the flow does not have
        raise UserError(f"{where}: parameters: {e}") from None
    return {**entry, "flow": flow, "schedules": [_schedule(s, where) for s in entry.get("schedules") or []]}


def _schedule(given: dict[str, Any], where: str) -> Any:
    """One of {cron, timezone}, {interval (seconds), anchor_date}, {rrule}, with `active`. Raises UserError if it can
    never fire."""
    import asyncio

    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import SCHEDULE_TYPES
    from pydantic import TypeAdapter, ValidationError

    given = dict(given)
    active = given.pop("active", True)
    try:
        schedule = TypeAdapter(SCHEDULE_TYPES).validate_python(given)
        ahead = asyncio.run(_ahead(schedule))
    except ValidationError as e:
        raise UserError(f"{where}: schedule {given}: {'; '.join(x['msg'] for x in e.errors()[:1])}") from None
    except ValueError as e:
        raise UserError(f"{where}: schedule {given}: {e}") from None
    if active and not ahead:
        raise UserError(
            f"{where}: schedule {given} lies in the past and would never fire: give it a time ahead, or `active: false`"
        )
    return DeploymentScheduleCreate(schedule=schedule, active=active)


async def _ahead(schedule: Any) -> list[datetime]:
    """The next time at which a schedule fires, as the server computes it."""
    from prefect.server.schemas import schedules as server_side

    return await getattr(server_side, type(schedule).__name__)(**schedule.model_dump()).get_dates(n=1)


def apply(api: Any, root: Path) -> list[str]:
    """Puts the deployments of prefect.yaml on the server, where they replace those of the same names. Returns a line
    about each."""
    from prefect.utilities.callables import parameter_schema

    server.prepare(api)
    lines = []
    entries = read(root)
    # a stage that a run sends to another pool is a deployment of that pool
    for pool in sorted({p for e in entries for p in ((e.get("parameters") or {}).get("pools") or {}).values()}):
        server.pool(api, pool)
        entries.append(_below(pool))
    for entry in entries:
        flow = entry["flow"]
        pool = (entry.get("work_pool") or {}).get("name", server.POOL)
        api.create_deployment(
            flow_id=api.create_flow(flow),
            name=entry["name"],
            description=entry.get("description") or flow.description,
            entrypoint=entry["entrypoint"],
            parameters=entry.get("parameters") or {},
            parameter_openapi_schema=parameter_schema(flow).model_dump(),
            enforce_parameter_schema=True,
            schedules=entry["schedules"],
            tags=entry.get("tags") or [],
            paused=bool(entry.get("paused")),
            concurrency_limit=entry.get("concurrency_limit"),
            work_pool_name=pool,
            pull_steps=[{"tasks.schedule.deployments.enter": {"directory": str(root.resolve())}}],
        )
        when = ", ".join(str(said_of(s.schedule)) for s in entry["schedules"]) or "no schedule"
        lines.append(f"{flow.name}/{entry['name']}: {when}")
    return lines


def _below(pool: str) -> dict[str, Any]:
    """The deployment by which the workers of a pool run one stage for a run of `pipeline`."""
    from prefect.utilities.importtools import import_object

    entrypoint = "flows.elsewhere.elsewhere"
    flow = import_object(entrypoint)
    return {"name": pool, "entrypoint": entrypoint, "flow": flow, "schedules": [], "work_pool": {"name": pool}}


def said_of(schedule: Any) -> str:
    """A schedule in words: its cron line, its rule, or its interval."""
    for key in ("cron", "rrule"):
        if getattr(schedule, key, None):
            return f"{getattr(schedule, key)}{f' ({schedule.timezone})' if schedule.timezone else ''}"
    return f"every {schedule.interval}"


def enter(directory: str) -> dict[str, str]:
    """Pull step of every deployment: work in the checkout that it was deployed from."""
    import os

    if not os.path.isdir(directory):
        raise UserError(
            f"the working directory of this deployment is gone: {directory}; put it back, or `espalier deploy` in the project's new place"
        )
    os.chdir(directory)
    return {"directory": directory}
