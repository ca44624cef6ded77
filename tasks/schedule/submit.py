"""Files that start a run elsewhere: a batch script of Slurm, a Job of Kubernetes, a job of Ray, a task of SkyPilot.

All run the same command in a copy of the project on storage that they share: `espalier run`, or one stage, which on
several machines torchrun starts. What may be ended and started again is started again: a stage goes on from its last row or
checkpoint, and its lock keeps two apart.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks.core.errors import AGAIN, TRANSIENT, UserError
from tasks.core.labels import TRAINED
from tasks.planning import places
from tasks.planning.devices import DEVICES
from tasks.storage import state

PORT = 29500  # where processes of several machines meet
MOUNT = "/project"  # where a container finds the project
GRACE = 300  # seconds before the limit at which Slurm says so: a stage ends well within them


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to run, and on what.

    stage     one stage; "" for the whole graph
    settings  words of `espalier run` behind it: --recipe NAME, --set STAGE.KNOB=VALUE
    nodes, gpus, gpu  machines, devices of each, and their kind where the scheduler must know it
    cpus, memory      of each machine; memory in GiB
    hours     after which it may be ended
    where     partition of Slurm, claim of a volume of Kubernetes, cloud of SkyPilot; image: of the container
    setup     shell command that installs Espalier on a machine of SkyPilot; "": the project is a clone of Espalier
    """

    name: str
    root: Path
    stage: str = ""
    settings: Sequence[str] = ()
    nodes: int = 1
    gpus: int = 0
    gpu: str = ""
    cpus: int = 8
    memory: int = 64
    hours: float = 24.0
    where: str = ""
    image: str = ""
    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def check(job: Job, kind: str, plans: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises UserError for a job that cannot run, before anything is spent."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", job.name):
        raise UserError(f"--name {job.name}: small letters, digits and hyphens, 52 at most")
    if job.nodes < 1 or job.hours <= 0 or job.cpus < 1 or job.memory < 1 or job.gpus < 0:
        raise UserError("submit: nodes, hours, cpus and memory must be above 0, and gpus 0 or more")
    if kind == "kubernetes" and not job.image:
        raise UserError("submit kubernetes: name the container's image, in which Espalier is installed, with --image")
    if kind == "kubernetes" and not job.where:
        raise UserError("submit kubernetes: name the volume claim that holds the project with --where")
    if kind == "skypilot" and job.gpus and not job.gpu:
        raise UserError(f"submit skypilot: say which devices: --gpus {job.gpus}xH200")
    if kind == "skypilot" and not (job.setup or _clone(job.root)):
        raise UserError(
            "submit skypilot: say with --setup how a machine gets Espalier, which is on no package index, e.g. --setup 'pip "
            "install git+URL@COMMIT'"
        )
    if kind == "kubernetes" and job.gpu in DEVICES:
        raise UserError(
            f"submit kubernetes: --gpus {job.gpus}x{job.gpu}: a node is chosen by the whole value of its label "
            "nvidia.com/gpu.product, such as NVIDIA-H100-80GB-HBM3: write the one that `kubectl get nodes -L "
            "nvidia.com/gpu.product` shows, or the number alone"
        )
    if job.stage and job.settings:
        raise UserError("submit: --set and --recipe are of the whole graph: for one stage write them into params.yaml")
    place = (plans.get("_run") or {}).get("place", {})
    if job.nodes > 1:
        if kind in ("ray", "skypilot"):
            raise UserError(
                f"submit {kind}: a stage runs on one machine there: leave --nodes out, or submit to slurm or kubernetes"
            )
        if job.stage not in TRAINED:
            raise UserError(
                f"submit: only the learners of a stage run on several machines: name one with --stage ({', '.join(TRAINED)}), or leave --nodes out"
            )
        learners = place.get(job.stage, {}).get("learners", 1)
        if learners % job.nodes or learners < job.nodes:
            raise UserError(
                f"submit: {job.stage}.learners is {learners}, and {job.nodes} machines share them equally: set {job.stage}.learners to a multiple of {job.nodes}"
            )
    for stage, at in place.items():
        device = str((plans.get(stage) or {}).get("params", {}).get("device", "cpu"))
        needed = places.devices(at, job.nodes if stage == job.stage else 1)
        if device.startswith("cuda") and job.stage in ("", stage) and needed > max(1, job.gpus):
            knobs = " and ".join(f"{stage}.{k}" for k in ("learners", "samplers") if at.get(k, 1) > 1)
            raise UserError(
                f"submit: {knobs} ask for {needed} devices of a machine, and --gpus gives {job.gpus}: raise it, or lower {knobs}"
            )


def _clone(root: Path) -> bool:
    """Whether the project is a clone of Espalier, which pip installs from its folder."""
    file = root / "pyproject.toml"
    return (
        file.exists() and tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}).get("name") == "espalier"
    )


def command(job: Job, learners: int = 1, *, meet: str = "", rank: str = "") -> str:
    """What a machine runs, as shell. Of several each runs it: meet, the address of the first; rank, the shell's word for
    which one this is. torchrun of the others waits for the first, which plans before and notes the result after."""
    if not job.stage:
        return f"espalier run {shlex.join(job.settings)}".strip()
    if job.nodes == 1:
        return f"espalier run --stage {job.stage}"
    return "\n".join(
        [
            f'if [ "{rank}" = 0 ]; then dvc repro plan; fi',
            f"python -P -m tasks.runtime.torchrun --nnodes {job.nodes} --nproc-per-node {learners // job.nodes} --node-rank {rank} "
            f"--master-addr {meet} --master-port {PORT} -m flows.{job.stage}",
            f'if [ "{rank}" = 0 ]; then dvc commit -f {job.stage}; fi',
        ]
    )


def slurm(job: Job, learners: int = 1) -> str:
    """A batch script. Before the limit Slurm sends SIGTERM to the script alone, which ends the stage and puts itself into
    the queue again; so does a node that fails."""
    minutes = round(job.hours * 60)
    lines = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={job.cpus}",
        f"--mem={job.memory}G",
        f"--time={minutes // 60}:{minutes % 60:02}:00",
        "--requeue",
        f"--signal=B:TERM@{min(GRACE, minutes * 30)}",
        "--open-mode=append",
        f"--output={job.root}/.espalier/submit/{job.name}-%j.log",
    ]
    if job.gpus:
        lines.append(f"--gpus-per-node={job.gpu + ':' if job.gpu else ''}{job.gpus}")
    if job.where:
        lines.append(f"--partition={job.where}")
    codes = "|".join(map(str, AGAIN))
    run, ended = command(job, learners, meet='"$MEET"', rank="$SLURM_NODEID"), ""
    if (
        job.nodes > 1
    ):  # srun ends the others with signals, and says the greatest code: what a machine noted itself counts
        ended = f".espalier/submit/{job.name}-$SLURM_JOB_ID.code"
        note = (
            f"case $C in 0) ;; {codes}) (set -C; echo $C > {ended}) 2>/dev/null || true;; *) echo $C > {ended};; esac"
        )
        run = f"trap 'C=$?; {note}; exit $C' EXIT\n{run}"
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in lines),
            "set -e",
            f"cd {shlex.quote(str(job.root))}",
            *(f"export {k}={shlex.quote(v)}" for k, v in job.env.items()),
            'export MEET=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            *([f"mkdir -p .espalier/submit; rm -f {ended}"] if ended else []),
            f"srun --kill-on-bad-exit=1 bash -e -c {shlex.quote(run)} &",
            "CHILD=$!",
            "again() { kill -TERM $CHILD; wait $CHILD || true; scontrol requeue $SLURM_JOB_ID; exit 0; }",
            "trap again TERM",
            "CODE=0; wait $CHILD || CODE=$?",
            *([f"if [ -s {ended} ]; then CODE=$(cat {ended}); fi"] if ended else []),
            f"# {TRANSIENT}: it may succeed when it is tried again, from where it was; 137 and 143: a signal ended it",
            f'case $CODE in {codes}) if [ "${{SLURM_RESTART_COUNT:-0}}" -lt 3 ]; then scontrol requeue $SLURM_JOB_ID; fi;; esac',
            "exit $CODE",
            "",
        ]
    )


def kubernetes(job: Job, learners: int = 1) -> str:
    """A Job, and for several machines a service by which they find each other. A pod that is evicted is begun anew and
    does not count; one that fails is tried again where its exit code says that this is of use."""
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "containers": [
            {
                "name": "espalier",
                "image": job.image,
                "workingDir": MOUNT,
                "command": ["bash", "-e", "-c"],
                "resources": {"requests": _amounts(job), "limits": {**_amounts(job)}},
                "volumeMounts": [{"name": "project", "mountPath": MOUNT}, {"name": "shm", "mountPath": "/dev/shm"}],
                "env": [{"name": k, "value": v} for k, v in job.env.items()],
            }
        ],
        "volumes": [
            {"name": "project", "persistentVolumeClaim": {"claimName": job.where}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},  # NCCL's; 64 MB are what a container has else
        ],
    }
    if job.gpu:
        pod["nodeSelector"] = {"nvidia.com/gpu.product": job.gpu}
    several = job.nodes > 1
    first = f"{job.name}-0.{job.name}"
    run = command(job, learners, meet=first, rank="$JOB_COMPLETION_INDEX")
    if several:
        pod["subdomain"] = job.name
        run = f"until getent hosts {first} >/dev/null; do sleep 2; done\n{run}"
    pod["containers"][0]["args"] = [run]
    spec: dict[str, Any] = {
        "backoffLimit": 0 if several else 3,
        "activeDeadlineSeconds": round(job.hours * 3600),
        "template": {"metadata": {"labels": {"app": job.name}}, "spec": pod},
    }
    if several:
        spec |= {"completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes}
    else:
        spec["podFailurePolicy"] = {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": list(AGAIN)}},
            ]
        }
    resources = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}]
    if several:
        resources.insert(
            0,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": job.name},
                "spec": {
                    "clusterIP": "None",
                    "publishNotReadyAddresses": True,
                    "selector": {"app": job.name},
                    "ports": [{"port": PORT}],
                },
            },
        )
    return yaml.safe_dump_all(resources, sort_keys=False, width=200)


def _amounts(job: Job) -> dict[str, str]:
    out = {"cpu": str(job.cpus), "memory": f"{job.memory}Gi"}
    return out | ({"nvidia.com/gpu": str(job.gpus)} if job.gpus else {})


def ray(job: Job, learners: int = 1) -> str:
    """The body of a request to Ray's API of jobs (POST /api/jobs/). The project lies on storage that the cluster shares."""
    body: dict[str, Any] = {
        "entrypoint": f"cd {shlex.quote(str(job.root))} && {command(job, learners)}",
        "submission_id": job.name,
        "entrypoint_num_cpus": job.cpus,
        "entrypoint_memory": job.memory * 2**30,
        "metadata": {"project": job.root.name, "stage": job.stage or "all"},
    }
    if job.gpus:
        body["entrypoint_num_gpus"] = job.gpus
    if job.env:
        body["runtime_env"] = {"env_vars": dict(job.env)}
    return json.dumps(body, indent=1) + "\n"


def skypilot(job: Job, learners: int = 1) -> str:
    """A task of SkyPilot. What DVC keeps comes from its remote and goes back there, since the machine is given back."""
    resources: dict[str, Any] = {"cpus": f"{job.cpus}+", "memory": f"{job.memory}+"}
    if job.gpus:
        resources["accelerators"] = {job.gpu: job.gpus}
    if job.where:
        resources["infra"] = job.where
    task: dict[str, Any] = {
        "name": job.name,
        "workdir": str(job.root),
        "resources": resources,
        "setup": f"{job.setup or 'pip install -c constraints.txt -e .'}\ndvc pull --allow-missing",
        "run": f"{command(job, learners)} && dvc push",
    }
    if job.env:
        task["envs"] = dict(job.env)
    return yaml.safe_dump(task, sort_keys=False, width=200)


KINDS: dict[str, tuple[Callable[[Job, int], str], str, tuple[str, ...]]] = {
    # what renders it, how its file ends, and the command that takes the file
    "slurm": (slurm, ".sbatch", ("sbatch",)),
    "kubernetes": (kubernetes, ".yaml", ("kubectl", "apply", "-f")),
    "ray": (ray, ".json", ()),
    "skypilot": (skypilot, ".yaml", ("sky", "jobs", "launch", "--yes")),
}


def write(job: Job, kind: str, learners: int = 1) -> Path:
    """Writes the rendered file to .espalier/submit."""
    render, ending, _ = KINDS[kind]
    file = job.root / ".espalier" / "submit" / f"{job.name}{ending}"
    file.parent.mkdir(parents=True, exist_ok=True)
    state.replace(file, render(job, learners).encode())
    return file


def send(file: Path, kind: str, address: str = "") -> str:
    """Submits a rendered file, and returns the answer. Raises UserError if the system does not accept it."""
    program = KINDS[kind][2]
    if not program:
        return _post(address, file)
    if shutil.which(program[0]) is None:
        raise UserError(
            f"submit {kind}: there is no command {program[0]} here; {file} is written: run `{shlex.join([*program, str(file)])}` where there is"
        )
    done = subprocess.run([*program, str(file)], capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or f"code {done.returncode}").splitlines()[-1]
        raise UserError(f"submit {kind}: {program[0]} refused {file}: {words}")
    return done.stdout.strip()


def _post(address: str, file: Path) -> str:
    url = f"{address.rstrip('/')}/api/jobs/"
    if not address.startswith(("http://", "https://")):
        raise UserError("submit ray: name the address of Ray's dashboard with --address, e.g. http://127.0.0.1:8265")
    request = urllib.request.Request(url, file.read_bytes(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return str(json.load(reply).get("submission_id", ""))
    except urllib.error.HTTPError as e:
        reason = e.read(2000).decode(errors="replace").strip().splitlines()
        raise UserError(f"submit ray: {url} refused the job ({e.code}): {reason[-1] if reason else e.reason}") from None
    except (OSError, ValueError) as e:
        raise UserError(
            f"submit ray: nobody answers as Ray's API of jobs at {url} ({e}): is the cluster up, and is this its dashboard's address?"
        ) from None
