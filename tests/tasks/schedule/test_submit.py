"""What is rendered for other schedulers: against the parts of their schemas that are used, and run where a shell can."""

import http.server
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import threading
import time

import jsonschema
import pytest
import toy
import yaml

from flows import cli
from tasks.schedule import submit

TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}


def of(required, **properties):
    needed = required.split()
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def some(items):
    return {"type": "array", "items": items}


TEXTS = {"type": "object", "additionalProperties": TEXT}
NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
CONTAINER = of(
    "name image",
    name=NAME,
    image=TEXT,
    workingDir=TEXT,
    command=some(TEXT),
    args=some(TEXT),
    resources=of("", requests=TEXTS, limits=TEXTS),
    volumeMounts=some(of("name mountPath", name=NAME, mountPath=TEXT)),
    env=some(of("name", name=TEXT, value={"type": "string"})),
)
VOLUME = of(
    "name",
    name=NAME,
    persistentVolumeClaim=of("claimName", claimName=TEXT),
    emptyDir=of("", medium={"enum": ["", "Memory"]}),
)
POD = of(
    "containers",
    restartPolicy={"enum": ["Never", "OnFailure"]},
    terminationGracePeriodSeconds={"type": "integer"},
    containers=some(CONTAINER),
    volumes=some(VOLUME),
    nodeSelector=TEXTS,
    subdomain=NAME,
)
CODES = of(
    "operator values", operator={"enum": ["In", "NotIn"]}, values={"type": "array", "items": COUNT, "uniqueItems": True}
)
RULE = of(
    "action",
    action={"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
    onExitCodes=CODES,
    onPodConditions=some(of("type status", type=TEXT, status={"enum": ["True", "False"]})),
)
META = of("", name=NAME, labels=TEXTS)
SCHEMAS = {  # batch/v1 Job, v1 Service; Ray's JobSubmitRequest; SkyPilot's task
    "Job": of(
        "apiVersion kind metadata spec",
        apiVersion={"const": "batch/v1"},
        kind={"const": "Job"},
        metadata=META,
        spec=of(
            "template",
            backoffLimit={"type": "integer", "minimum": 0},
            activeDeadlineSeconds=COUNT,
            template=of("spec", metadata=META, spec=POD),
            completionMode={"enum": ["Indexed", "NonIndexed"]},
            completions=COUNT,
            parallelism=COUNT,
            podFailurePolicy=of("rules", rules=some(RULE)),
        ),
    ),
    "Service": of(
        "apiVersion kind metadata spec",
        apiVersion={"const": "v1"},
        kind={"const": "Service"},
        metadata=META,
        spec=of(
            "ports",
            clusterIP={"const": "None"},
            publishNotReadyAddresses={"type": "boolean"},
            selector=TEXTS,
            ports=some(of("port", port={"type": "integer", "minimum": 1, "maximum": 65535})),
        ),
    ),
    "ray": of(
        "entrypoint",
        entrypoint=TEXT,
        submission_id=TEXT,
        runtime_env=of("", env_vars=TEXTS, working_dir=TEXT),
        metadata=TEXTS,
        entrypoint_num_cpus={"type": "number"},
        entrypoint_num_gpus={"type": "number"},
        entrypoint_memory={"type": "integer"},
        entrypoint_resources={"type": "object"},
    ),
    "skypilot": of(
        "resources run",
        name={"type": "string", "pattern": "^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$"},
        workdir=TEXT,
        num_nodes=COUNT,
        resources=of(
            "",
            accelerators={"type": "object", "additionalProperties": {"type": "number"}},
            cpus={"type": "string", "pattern": r"^\d+\+?$"},
            memory={"type": "string", "pattern": r"^\d+\+?$"},
            infra=TEXT,
        ),
        setup=TEXT,
        run=TEXT,
        envs=TEXTS,
    ),
}
SBATCH = set(
    "job-name nodes ntasks-per-node cpus-per-task mem time requeue signal open-mode output gpus-per-node partition".split()
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("submit") / "mine"
    assert cli.main(["init", str(root)]) == 0
    return root


@pytest.fixture
def submitted(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)

    def of(*words, code=0, params=None):
        file = root / "params.yaml"
        before = file.read_text()
        try:
            if params:
                file.write_text(yaml.safe_dump({**yaml.safe_load(before), "set": params}))
            assert cli.main(["submit", *words]) == code
        finally:
            file.write_text(before)
        out = capsys.readouterr()
        return out.err if code else out.out

    return of


def fits(kind, value):
    jsonschema.Draft202012Validator(SCHEMAS[kind]).validate(value)


def test_a_job_of_kubernetes_fits_its_schema(submitted):
    how = ("kubernetes", "--image", "ours:1", "--where", "claim", "--gpus", "4xNVIDIA-H100", "--dry-run")
    (job,) = yaml.safe_load_all(submitted(*how, "--set", "rl.steps=3"))
    fits("Job", job)
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["espalier run --set rl.steps=3"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    (ignore, fail) = job["spec"]["podFailurePolicy"]["rules"]
    assert ignore["action"] == "Ignore" and 75 in fail["onExitCodes"]["values"], "what may be tried again is no failure"
    service, job = yaml.safe_load_all(
        submitted(*how, "--stage", "rl", "--nodes", "2", params={"rl": {"learners": 8, "prompts_per_step": 16}})
    )
    fits("Service", service)
    fits("Job", job)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    (run,) = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--nproc-per-node 4 --node-rank $JOB_COMPLETION_INDEX --master-addr espalier-rl-0.espalier-rl" in run
    with pytest.raises(jsonschema.ValidationError):
        fits("Job", {**job, "spec": {**job["spec"], "backOffLimit": 1}})


def test_what_the_page_shows_is_accepted_in_a_new_project(submitted):
    page = (toy.CODE / "docs/scaling.md").read_text().partition("## On a cluster")[2]
    yaml_of, shell = re.findall(r"```(?:yaml)?\n(.*?)```", page, re.DOTALL)[:2]
    params = yaml.safe_load(yaml_of)["set"]
    for line in shell.strip().splitlines():
        command = shlex.split(line.partition("#")[0])
        assert command[:2] == ["espalier", "submit"]
        submitted(*command[2:], *(["--dry-run"] if "--dry-run" not in command else []), params=params)


def test_a_job_of_ray_and_a_task_of_skypilot_fit_theirs(submitted, root):
    body = json.loads(submitted("ray", "--gpus", "1", "--stage", "questions", "--dry-run"))
    fits("ray", body)
    assert body["entrypoint"] == f"cd {root} && espalier run --stage questions" and body["entrypoint_num_gpus"] == 1
    task = yaml.safe_load(
        submitted(
            "skypilot",
            "--gpus",
            "8xH200",
            "--where",
            "aws",
            "--recipe",
            "grpo",
            "--setup",
            "pip install x",
            "--dry-run",
        )
    )
    fits("skypilot", task)
    assert task["setup"].splitlines() == ["pip install x", "dvc pull --allow-missing"]
    assert task["resources"]["accelerators"] == {"H200": 8} and task["run"] == "espalier run --recipe grpo && dvc push"


def test_a_script_of_slurm_names_options_that_there_are(submitted):
    script = submitted(
        "slurm",
        "--nodes",
        "2",
        "--gpus",
        "4",
        "--stage",
        "sft",
        "--hours",
        "1.5",
        "--dry-run",
        params={"sft": {"learners": 8}},
    )
    options = dict((x[10:].split("=", 1) + [""])[:2] for x in script.splitlines() if x.startswith("#SBATCH --"))
    assert options.keys() <= SBATCH and options["time"] == "1:30:00" and options["signal"] == "B:TERM@300"
    assert (
        "-m tasks.runtime.torchrun --nnodes 2 --nproc-per-node 4" in script
        and subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    )


@pytest.fixture
def slurm(tmp_path, root):
    """Runs a script as Slurm would on one machine, with a stage that does what `does` says; `srun`: the code of srun, if it is
    not that of the stage."""
    tools = tmp_path / "bin"
    tools.mkdir()

    def begin(does, srun="", **job):
        for name, text in {
            "scontrol": f'[ "$1" = show ] && echo host || echo "$@" >> {tmp_path}/asked',
            "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; ' + (f'"$@"; exit {srun}' if srun else 'exec "$@"'),
            **dict.fromkeys(("espalier", "python"), does),  # of one machine, and torchrun of several
            "dvc": "true",
        }.items():
            (tools / name).write_text(f"#!/bin/bash\n{text}\n")
            (tools / name).chmod(stat.S_IRWXU)
        script = tmp_path / "job.sbatch"
        script.write_text(submit.slurm(submit.Job(name="job", root=root, **job), 2))
        env = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "host",
            "SLURM_NODEID": "1",
        }
        return subprocess.Popen(["bash", str(script)], env=env)

    def asked():
        file = tmp_path / "asked"
        return file.read_text().split() if file.exists() else []

    return begin, asked


def test_a_job_that_reaches_its_limit_ends_its_stage_and_is_queued_again(slurm, tmp_path):
    begin, calls = slurm
    up, ended = tmp_path / "up", tmp_path / "ended"
    child = begin(f"trap 'touch {ended}; exit 143' TERM; touch {up}; while :; do sleep 0.05; done")
    until = time.monotonic() + 600  # seconds: a bound that only a failure reaches
    while not up.exists() and time.monotonic() < until:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(600) == 0 and ended.exists() and calls() == ["requeue", "7"]


@pytest.mark.parametrize(("code", "again"), [(0, False), (2, False), (75, True), (137, True)])
@pytest.mark.parametrize(
    "job", [{}, {"stage": "sft"}, {"stage": "sft", "nodes": 2}], ids=["graph", "stage", "machines"]
)
def test_only_what_may_succeed_is_queued_again(slurm, code, again, job):
    begin, calls = slurm
    assert begin(f"exit {code}", **job).wait(600) == code and bool(calls()) == again


@pytest.mark.parametrize(("code", "again"), [(2, False), (75, True)])
def test_of_several_machines_the_code_that_one_gave_counts(slurm, code, again):
    """srun says 137 where it has ended the others, which note nothing."""
    begin, calls = slurm
    assert begin(f"exit {code}", "137", stage="sft", nodes=2).wait(600) == code and bool(calls()) == again


def test_a_job_goes_to_ray(submitted, root):
    got = []

    class Jobs(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200 if len(got) == 1 else 400)
            self.end_headers()
            self.wfile.write(b'{"submission_id": "espalier-run"}' if len(got) == 1 else b"it exists already")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Jobs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert submitted("ray", "--address", address).endswith("espalier-run\n")
        assert "refused the job (400): it exists already" in submitted("ray", "--address", address, code=2)
        server.shutdown()
    assert got[0][0] == "/api/jobs/" and got[0][1] == json.loads(
        (root / ".espalier/submit/espalier-run.json").read_text()
    )
    assert "nobody answers as Ray's API of jobs" in submitted("ray", "--address", address, code=2)


@pytest.mark.parametrize(
    ("words", "params", "sentence"),
    [
        ("slrum", None, "there is no system 'slrum': did you mean 'slurm'"),
        ("slurm --stage sfft", None, "--stage sfft: did you mean 'sft'"),
        ("slurm --nodes 2", None, "only the learners of a stage run on several machines"),
        ("slurm --nodes 2 --stage sft", None, "set sft.learners to a multiple of 2"),
        ("slurm --nodes 0", None, "nodes, hours, cpus and memory must be above 0"),
        ("slurm --gpus many", None, "write how many a machine has, and which: 8, or 8xH200"),
        ("slurm --stage sft --set sft.steps=2", None, "for one stage write them into params.yaml"),
        ("slurm --set sft.stepps=2", None, "--set sft.stepps"),
        (
            "slurm --gpus 2",
            {"sft": {"device": "cuda", "learners": 4}},
            "--gpus gives 2: raise it, or lower sft.learners",
        ),
        (
            "slurm --gpus 4",
            {"rl": {"device": "cuda", "learners": 2, "samplers": 3, "engine": {"name": "vllm"}}},
            "rl.learners and rl.samplers ask for 5 devices of a machine, and --gpus gives 4",
        ),
        ("kubernetes", None, "name the container's image"),
        ("kubernetes --image x", None, "name the volume claim"),
        ("ray --nodes 2 --stage sft", None, "a stage runs on one machine there"),
        ("ray", None, "name the address of Ray's dashboard"),
        ("skypilot --gpus 8", None, "say which devices: --gpus 8xH200"),
        ("skypilot --gpus 8xH200", None, "say with --setup how a machine gets Espalier"),
        ("kubernetes --image x --where y --gpus 8xH200", None, "such as NVIDIA-H100-80GB-HBM3"),
        ("slurm --name Big_Job", None, "small letters, digits and hyphens"),
        ("slurm", None, "there is no command sbatch here"),
    ],
)
def test_a_mistake_is_one_sentence(submitted, words, params, sentence):
    err = submitted(*words.split(), code=2, params=params)
    assert err.startswith("error: ") and sentence in err and err.count("\n") == 1
