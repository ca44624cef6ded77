"""Shipping the spool (tasks/tracking/spool.py) to MLflow, with tasks/tracking/models.py the files that import mlflow.

Events that one pass cannot ship are shipped by the next. Each event counts once: the offset moves only after MLflow has
taken a batch, a batch that is sent again after a crash carries the same time stamps and steps (MLflow keeps one copy),
and runs are looked up by a key before they are made. `python -m tasks.tracking.observe` ships while its standard input
is open, and once more when that closes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from synth.types import digest
from tasks.core.errors import UserError
from tasks.runtime import process
from tasks.runtime.stage import OUT, REMEDY, Stage, graph, load
from tasks.storage import commit, state
from tasks.tracking import episodes, models
from tasks.tracking.spool import ENDED, FACTS, events, executions, flat, spool, streams

EXPERIMENT = "espalier"
EVERY = 5.0  # seconds between two passes beside a stage


def uri(root: Path) -> str:
    """MLFLOW_TRACKING_URI, or a SQLite file in the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve()}/mlflow.db"


def settle(root: Path) -> None:
    """Makes what MLflow has stored survive a power cut, if its store is the project's own file: SQLite
    commits by removing its journal, and flushes the folder only before the next change."""
    where = uri(root)
    if where.startswith("sqlite:///") and (folder := Path(where.removeprefix("sqlite:///")).parent).is_dir():
        commit.flush(folder)


def client(root: Path) -> Any:
    """An MlflowClient that gives up soon: with the default settings a dead server holds its caller for minutes."""
    for name, value in (("MAX_RETRIES", "1"), ("TIMEOUT", "5"), ("BACKOFF_FACTOR", "1")):
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import logging

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    from mlflow import MlflowClient

    return MlflowClient(uri(root), registry_uri=uri(root))


def silence(where: str, seconds: float = 2.0) -> str:
    """Why a tracking URI does not answer; "" if it does. Called before mlflow is imported, because mlflow waits for its
    own long time-outs."""
    if not where.startswith(("http://", "https://")):
        return ""
    try:
        with urllib.request.urlopen(f"{where.rstrip('/')}/health", timeout=seconds):
            return ""
    except urllib.error.HTTPError:
        return ""  # an answer, if not a friendly one
    except (OSError, ValueError) as e:
        return f"no answer within {seconds:g} seconds: {e}"


def faults() -> tuple[type[Exception], ...]:
    """What MLflow raises where its server or its database fails: the second comes through as SQLAlchemy's (a file that is
    locked or damaged). Imports both."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


def reason(error: BaseException) -> str:
    """An error of `faults` on one line, without its SQL."""
    text = " ".join(str(error).partition("[SQL:")[0].split())[:300]
    if "database is locked" in text:
        return f"{text}: another process writes to it; try again when that has ended"
    return text


@contextmanager
def refusals(root: Path) -> Iterator[None]:
    """Turns a refusal of MLflow or its database into a UserError of one sentence."""
    if why := silence(uri(root)):
        raise UserError(f"MLflow at {uri(root)} cannot be reached ({why}): start it, then try again")
    try:
        yield
    except UserError:
        raise
    except faults() as e:
        raise UserError(f"MLflow at {uri(root)} refused: {reason(e)}") from None


class Shipping:
    """One pass over the spool of `root`. `left` counts events that could not be shipped, `problem` says why."""

    def __init__(self, root: Path, make_client: Callable[[Path], Any] = client) -> None:
        self.root, self.left, self.sent, self.problem = root, 0, 0, ""
        self._make, self._client, self._experiment = make_client, None, ""

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = self._make(self.root)
        return self._client

    @property
    def experiment(self) -> str:
        if not self._experiment:
            known = self.client.get_experiment_by_name(EXPERIMENT)
            local = uri(self.root).startswith("sqlite:")
            place = (self.root.resolve() / "mlartifacts").as_uri() if local else None
            self._experiment = (
                known.experiment_id if known else self.client.create_experiment(EXPERIMENT, artifact_location=place)
            )
        return self._experiment

    def all(self) -> Shipping:
        """Ship every execution that is not closed yet, the oldest first; close those whose process has ended."""
        open_ = [(folder, about) for folder, about in executions(self.root) if not about.get("closed")]
        if not open_:
            return self
        self.problem = silence(uri(self.root))
        if self.problem:
            self.left = sum(_waiting(f) for f, _ in open_)
            return self
        for folder, about in open_:
            try:
                self._execution(folder, about)
            except faults() as e:
                self.problem = reason(e)
                break
        else:
            self._bury()
        self.left = sum(_waiting(f) for f, _ in open_)
        return self

    def _execution(self, folder: Path, about: dict[str, Any]) -> None:
        parent = self.parent(folder, about)
        for path in streams(folder):
            self._stage(path, parent)
        if (folder / ENDED).exists() or not process.alive(about["pid"], about["started"]):
            self.close(folder, "")

    def _bury(self) -> None:
        """Runs of this machine whose process is gone and whose spool is too (a checkout that was deleted) stay RUNNING
        for ever otherwise. Runs that a spool still tells of are closed by it, with all that it holds."""
        told = {about.get("run") for _, about in executions(self.root)}
        try:
            here = f"attributes.status = 'RUNNING' and tags.`espalier.host` = '{socket.gethostname()}'"
            for run in self.client.search_runs([self.experiment], filter_string=here, max_results=100):
                pid, _, started = run.data.tags.get("espalier.process", "").partition(" ")
                spooled = Path(run.data.tags.get("espalier.spool", "")).is_dir()
                if run.info.run_id in told or spooled or not pid.isdigit() or process.alive(int(pid), started):
                    continue
                below = f"attributes.status = 'RUNNING' and tags.`mlflow.parentRunId` = '{run.info.run_id}'"
                for child in self.client.search_runs([self.experiment], filter_string=below, max_results=100):
                    self.client.set_terminated(child.info.run_id, "KILLED")
                self.client.set_terminated(run.info.run_id, "KILLED")
        except faults() as e:
            self.problem = reason(e)

    def parent(self, folder: Path, about: dict[str, Any]) -> str:
        """The parent run of an execution, looked up by its key before it is made."""
        if not about.get("run"):
            tags = {
                "espalier.recipe": about.get("recipe", ""),
                "espalier.profile": about.get("profile", ""),
                "mlflow.source.git.commit": about["commit"],
                "espalier.host": socket.gethostname(),
                "espalier.process": f"{about['pid']} {about['started']}",
                "espalier.spool": str(folder.resolve()),
            }
            about["run"] = self._run(
                about["key"],
                _begun(about),
                about["time"],
                tags,
            )
            state.write(folder / "execution.json", about)
        return about["run"]

    def _run(self, key: str, name: str, at: int, tags: Mapping[str, str]) -> str:
        same = self.client.search_runs([self.experiment], filter_string=f"tags.`espalier.key` = '{key}'", max_results=1)
        if same:
            return same[0].info.run_id
        full = {"espalier.key": key, "mlflow.runName": name, **{k: v for k, v in tags.items() if v}}
        return self.client.create_run(self.experiment, start_time=at, tags=full, run_name=name).info.run_id

    def _stage(self, path: Path, parent: str) -> None:
        mark = path.with_suffix(".sent")
        commit.flush(path)  # else a power cut could leave fewer events than the mark says are shipped
        sent = _sent(path)
        data = path.read_bytes()[sent["offset"] :]
        data = data[: data.rfind(b"\n") + 1]  # a line that is being written now is for the next pass
        batch: list[dict[str, Any]] = []
        for line, event in zip(data.split(b"\n")[:-1], events(data), strict=True):
            line += b"\n"
            if batch and (event is None or event["kind"] != "metrics" or len(batch) >= 200):
                self._deliver(path, sent, batch)
                self._mark(mark, sent)
                batch = []
            if event is None:
                self._lose(path, line)
                sent["offset"] += len(line)
                self._mark(mark, sent)
                continue
            if event["kind"] != "begin" and not sent["run"]:  # the line that began this stream is damaged
                lost = {"identity": "", "recipe": "", "flow_run": "", "time": event["time"]}
                sent["run"] = self._child(path.stem, parent, lost)
            if event["kind"] == "metrics":
                batch.append({**event, "bytes": len(line)})
            else:
                if event["kind"] == "begin":
                    sent["run"] = self._child(path.stem, parent, event)
                self._deliver(path, sent, [{**event, "bytes": len(line)}])
                self._mark(mark, sent)
        if batch:
            self._deliver(path, sent, batch)
            self._mark(mark, sent)

    def _mark(self, mark: Path, sent: dict[str, Any]) -> None:
        settle(self.root)
        state.write(mark, sent)

    def _lose(self, path: Path, line: bytes) -> None:
        """Keep a damaged line in <stage>.lost.jsonl, and go on with the next: one bad byte must not hold up the
        rest."""
        lost = path.with_suffix(".lost.jsonl")
        with lost.open("ab") as out:
            out.write(line)
        print(f"warning: a line of {path} is damaged and is not shipped; it lies in {lost.name}", file=sys.stderr)

    def _child(self, stage: str, parent: str, event: Mapping[str, Any]) -> str:
        key = f"{parent}/{stage}/{event['identity']}"
        tags = {
            "mlflow.parentRunId": parent,
            "espalier.stage": stage,
            "espalier.identity": event["identity"],
            "espalier.recipe": event["recipe"],
            "espalier.flow_run": event["flow_run"],
        }
        return self._run(key, stage, event["time"], tags)

    def _deliver(self, path: Path, sent: dict[str, Any], events: list[dict[str, Any]]) -> None:
        """Hand events over and move the offset. What MLflow refuses for good is kept in <stage>.refused.jsonl: it
        must not hold up the rest."""
        from mlflow.exceptions import MlflowException

        try:
            self._log(sent["run"], events, path.stem)
        except MlflowException as e:
            if e.error_code not in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS"):
                raise
            with path.with_suffix(".refused.jsonl").open("a", encoding="utf-8") as quarantined:
                quarantined.writelines(json.dumps({"why": str(e)[:300], **event}) + "\n" for event in events)
        sent["offset"] += sum(e["bytes"] for e in events)
        self.sent += len(events)

    def _log(self, run: str, events: list[dict[str, Any]], stage: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

        first = events[0]
        if first["kind"] == "metrics":
            metrics = [Metric(_name(k), v, e["time"], e["step"]) for e in events for k, v in e["metrics"].items()]
            for i in range(0, len(metrics), 1000):
                self.client.log_batch(run, metrics=metrics[i : i + 1000])
        elif first["kind"] == "begin":
            params = [Param(_name(k), str(v)[:6000]) for k, v in first["params"].items()]
            for i in range(0, len(params), 100):
                self.client.log_batch(run, params=params[i : i + 100])
        elif first["kind"] == "dataset":
            data = Dataset(
                name=first["name"],
                digest=first["digest"][:36],
                source_type="local",
                source=json.dumps({"path": first["name"]}),
                profile=json.dumps({"rows": first["rows"]}),
            )
            self.client.log_inputs(run, [DatasetInput(data, [InputTag("mlflow.data.context", "input")])])
        elif first["kind"] == "artifact":
            if _sound(self.root, self.root / first["path"]):
                self.client.log_artifact(run, str(self.root / first["path"]))
        elif first["kind"] == "episodes":
            self._episodes(run, self.root / first["path"], first["n"], first["time"], first.get("seconds", {}))
        elif first["kind"] == "card":
            self.client.log_dict(run, first["card"], "card.json")
            taken = [
                f"{env}: {', '.join(a['accepted'])}"
                for env, a in first["card"].get("audit", {}).items()
                if a["accepted"]
            ]
            if taken:
                self.client.set_tag(run, "espalier.accepted", "; ".join(taken))
        elif first["kind"] == "end":
            if first["reason"]:
                self.client.set_tag(run, "espalier.error", first["reason"])
            if first["status"] == "FINISHED":
                self._models(run, stage)
            self.client.set_terminated(run, first["status"], end_time=first["time"])

    def _models(self, run: str, stage: str) -> None:
        """The models and the data of a stage, where its output is still the one that the run made."""
        mine, now = self.client.get_run(run).data.tags.get("espalier.identity"), self._identities()
        folder = self.root / "artifacts" / stage
        if mine and now.get(stage) == mine and all(_sound(self.root, p) for p in folder.glob("model")):
            models.log(self.client, self.experiment, run, self.root, stage, now)

    def _identities(self) -> dict[str, str]:
        """Stage -> the identity of its output as the plan has it; without those whose plan is not there."""
        identities = {}
        for stage in graph(self.root):
            with suppress(commit.Damaged, UserError):
                identities[stage] = Stage(stage, plan=load(stage, self.root), root=self.root).identity
        return identities

    def _episodes(self, run: str, path: Path, n: int, at: int, seconds: Mapping[str, Sequence[float]]) -> None:
        """Conversations as traces and as a table; `seconds` as `Stage.episodes` records them. Traces are flushed before
        the offset moves."""
        if not _sound(self.root, path):
            return
        import mlflow
        from mlflow import tracing

        given = os.environ.get("MLFLOW_TRACKING_URI")
        mlflow.set_tracking_uri(uri(self.root))  # traces go where the process sends them, and not where a client does
        if given is None:  # MLflow sets it, and the next project of this process would follow it
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        # the way there was made with the first trace of this process, perhaps for another project
        tracing.reset()
        drawn = episodes.chosen(path, n)
        self.client.log_table(run, episodes.table(drawn), "episodes.json")
        for i, e in enumerate(episodes.missing(self.client, self.experiment, run, drawn)):
            begun = at * 1_000_000 + i * 1_000_000_000
            episodes.trace(self.client, self.experiment, run, e, begun, seconds.get(episodes.conversation(e)))
        mlflow.flush_trace_async_logging()

    def close(self, folder: Path, lock: str) -> str:
        """End the parent run: link the stages that were cached, copy the last metrics, tag the digest of dvc.lock.
        Returns its run id. One that is closed already only gets the tag."""
        about = state.read(folder / "execution.json", else_="run the command again", needs=FACTS)
        if about is None:
            raise UserError(
                f"{folder / 'execution.json'} is damaged or gone: run the command again, which makes it anew"
            )
        run = self.parent(folder, about)
        if lock:
            self.client.set_tag(run, "espalier.dvc_lock", lock)
        if about.get("closed"):
            return run
        ends = {p.stem: _last_end(p) for p in streams(folder)}
        for stage, status in ends.items():
            if status == "KILLED" and (child := _sent(folder / f"{stage}.jsonl")["run"]):
                self.client.set_terminated(child, "KILLED")
        for stage in graph(self.root):
            if stage not in ends and (self.root / "artifacts" / "plan" / f"{stage}.json").exists():
                self.client.set_tag(run, f"stage.{stage}", f"cached: {self._earlier(stage)}")
        metrics = self.root / "artifacts" / "evaluate" / "metrics.json"
        if "evaluate" in ends and _sound(self.root, metrics):
            # MLflow's page draws a chart for every key: the means of the models and of their differences; the rest is
            # in metrics.json.
            measured = json.loads(metrics.read_bytes())
            shown = [
                (k, v) for k, v in flat(measured) if k.startswith(("models.", "difference.")) and k.endswith(".mean")
            ]
            values = {k: v for k, v in shown if isinstance(v, int | float) and not isinstance(v, bool)}
            from mlflow.entities import Metric

            self.client.log_batch(
                run, metrics=[Metric(_name(k), float(v), about["time"], 0) for k, v in values.items()]
            )
            by_model = {
                n: {_name(k[:-5]): float(v) for k, v in flat(of) if k.endswith(".mean") and isinstance(v, int | float)}
                for n, of in measured["models"].items()
            }
            judge = _sent(folder / "evaluate.jsonl")["run"]
            models.measured(self.client, self.experiment, judge, self.root, by_model, self._identities(), about["time"])
            if result := headline(measured):
                self.client.update_run(run, name=f"{_begun(about)}, {result}")
        card = self.root / "reports" / "model_card.md"
        if "report" in ends and _sound(self.root, card):
            self.client.set_tag(
                run, "mlflow.note.content", card.read_text(encoding="utf-8").split("\n---\n", 1)[-1].strip()[:5000]
            )
        self.client.set_terminated(run, next((s for s in ends.values() if s != "FINISHED"), "FINISHED"))
        settle(self.root)
        state.write(folder / "execution.json", {**about, "closed": True})
        return run

    def _earlier(self, stage: str) -> str:
        try:
            identity = Stage(stage, plan=load(stage, self.root), root=self.root).identity
        except commit.Damaged:  # the next run makes the plan anew
            return "made elsewhere"
        query = f"tags.`espalier.stage` = '{stage}' and tags.`espalier.identity` = '{identity}'"
        same = self.client.search_runs(
            [self.experiment], filter_string=query, order_by=["attributes.start_time DESC"], max_results=1
        )
        return same[0].info.run_id if same else "made elsewhere"


def _begun(about: Mapping[str, Any]) -> str:
    return f"{about.get('recipe') or 'run'} {time.strftime('%Y-%m-%d %H:%M', time.localtime(about['time'] / 1000))}"


def headline(metrics: Mapping[str, Any]) -> str:
    """The result of a run, for its name, as `rl 0.524 (+0.178 to sft)`: pass@1 of the last model and its difference to the
    one that it was compared with; "" where no model has one."""
    models = {
        n: m["pass@1"]["mean"] for n, m in metrics["models"].items() if m.get("pass@1", {}).get("mean") is not None
    }
    if not models:
        return ""
    last = next(reversed(models))
    gains = metrics.get("difference", {}).items()
    gain = next(((k, v["mean"]) for k, v in gains if k.startswith(f"{last} - ") and v["mean"] is not None), None)
    return f"{last} {models[last]:.3f}" + (f" ({gain[1]:+.3f} to {gain[0].removeprefix(f'{last} - ')})" if gain else "")


def _name(text: str) -> str:
    """A name that MLflow takes: "pass@1" is "pass_at_1", and a character that it does not allow becomes an underscore."""
    return re.sub(r"[^\w\-. :/]", "_", text.replace("@", "_at_"), flags=re.ASCII)


def _last_end(path: Path) -> str:
    last = next((e for e in reversed(list(events(path.read_bytes()))) if e), {"kind": ""})
    return last["status"] if last["kind"] == "end" else "KILLED"


def _sent(path: Path) -> dict[str, Any]:
    """How many bytes of a stream are shipped, and to which run. Without the file that says so all is sent again: MLflow
    keeps one copy."""
    mark = path.with_suffix(".sent")
    sent = state.read(mark, else_=(again := "its events are sent again, and count once"), needs=("offset", "run"))
    if sent and not (isinstance(sent["offset"], int) and 0 <= sent["offset"] <= path.stat().st_size):
        sent = state.quarantine(mark, "it says that more was shipped than there is", again)
    return sent or {"offset": 0, "run": ""}


def _sound(root: Path, path: Path) -> bool:
    """Whether a file of an output can be shown with a run; where it is damaged, a warning says so."""
    if not path.exists():
        return False
    try:
        for folder in {root / p for p in (*OUT.values(), *(f"artifacts/{s}" for s in graph(root)))} & set(path.parents):
            commit.check(folder, path.relative_to(folder).as_posix(), remedy=REMEDY)
    except commit.Damaged as e:
        print(f"warning: {e}", file=sys.stderr)
        return False
    return True


def _waiting(folder: Path) -> int:
    """The events of an execution that have not been shipped."""
    count = 0
    for path in streams(folder):
        count += path.read_bytes()[_sent(path)["offset"] :].count(b"\n")
    return count


@contextmanager
def shipping(root: Path, wait: float) -> Iterator[Shipping | None]:
    """A Shipping of `root` while no other process ships there; None where another still does after `wait` seconds."""
    spool(root).mkdir(parents=True, exist_ok=True)
    with (spool(root) / "lock").open("w") as lock:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    yield None
                    return
                time.sleep(0.1)
        yield Shipping(root)


def sync(root: Path, wait: float = 60.0) -> str:
    """Ships all waiting events, and returns one line about the result."""
    with shipping(root, wait) as ship:
        if ship is None:
            return "another process is shipping events to MLflow; try `espalier sync` again when it has ended"
        ship.all()
    if ship.left or ship.problem:
        what = f"{ship.left} events wait in {spool(root)}: MLflow at {uri(root)} did not take them ({ship.problem})"
        return f"{what}; `espalier sync` ships them later"
    return f"{ship.sent} events shipped to MLflow at {uri(root)}"


def curves(root: Path, result: Mapping[str, Any], page: Path) -> list[str]:
    """A run for each setting of tasks/results/curves.py: mean, low and high of every curve that the report draws first,
    step by step, and the page. One that is there already (the same setting, states and numbers) is not made again. What
    was done, line by line.

    Raises UserError where nobody answers, or MLflow refuses.
    """
    problem = silence(uri(root))
    if problem:
        raise UserError(f"MLflow at {uri(root)}: {problem}; the page is at {page}")
    from mlflow.entities import Metric

    from tasks.core.labels import CURVES

    ship, lines = Shipping(root), []
    for group in result["groups"]:
        name = group["name"]
        mine = {
            f"{stage}/{c}": by[name]
            for stage, columns in result["curves"].items()
            for c, by in columns.items()
            if c in CURVES and name in by
        }
        key = f"curves-{digest(name, group['states'], mine)[:32]}"
        about = f"Mean over the seeds {', '.join(map(str, group['seeds']))} with its 95 % interval (`_low`, `_high`) at every step; curves.html draws it."
        tags = {
            "espalier.recipe": group["recipe"],
            "espalier.seeds": ",".join(map(str, group["seeds"])),
            "mlflow.note.content": about,
        }
        title = f"{name}, {len(group['seeds'])} seed{'s' if len(group['seeds']) > 1 else ''}"
        try:
            run = ship._run(key, title, int(time.time() * 1000), tags)
            if ship.client.get_run(run).info.status == "FINISHED":
                lines.append(f"in MLflow already: {title} (run {run})")
                continue
            points = [
                Metric(_name(k + end), m[which][i], step, step)
                for k, m in mine.items()
                for which, end in (("mean", ""), ("low", "_low"), ("high", "_high"))
                if m[which] is not None
                for i, step in enumerate(m["step"])
            ]
            for i in range(0, len(points), 1000):
                ship.client.log_batch(run, metrics=points[i : i + 1000])
            ship.client.log_artifact(run, str(page))
            ship.client.set_terminated(run)
        except faults() as e:
            raise UserError(f"MLflow at {uri(root)} did not take the curves: {reason(e)}; the page is at {page}") from e
        lines.append(f"in MLflow: {title} (run {run})")
    return lines


def _follow(root: Path) -> None:
    """Ships until standard input closes, then once more."""
    open_ = True
    while open_:
        open_ = not select.select([sys.stdin], [], [], EVERY)[0]
        print(time.strftime("%Y-%m-%d %H:%M:%S"), sync(root, 0.0 if open_ else 30.0), flush=True)


if __name__ == "__main__":
    _follow(Path.cwd())
