"""`python -m tests.support.service_drill`: start every service of a project as a user does, send each the 40 requests of pages of
other sites (tests/support/foreign.py) with what a browser would send along, and say how many were answered; then how it bears
280 connections that never say a whole request.

It runs in a project that has a knowledge base in artifacts/kb and the pairs of a file; `--kb` and `--pairs` name others.
"""

import argparse
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import exported  # noqa: E402
import foreign  # noqa: E402
from ports import free_port  # noqa: E402

from training.model.model import save_model  # noqa: E402

ESPALIER = [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())"]
SERVICES = {  # command, line that says it answers, a request that reads and one that writes
    "espalier schedule": (
        ["schedule", "--port", "{port}"],
        r"Prefect: http",
        "/api/admin/version",
        "/api/flows/",
        b'{"name": "taken"}',
    ),
    "espalier ui": (
        ["ui", "--port", "{port}"],
        r"MLflow: http",
        "/version",
        "/api/2.0/mlflow/experiments/create",
        b'{"name": "taken"}',
    ),
    "espalier serve": (
        ["serve", "model", "--port", "{port}"],
        r"serving model",
        "/v1/models",
        "/v1/completions",
        b'{"prompt": "a"}',
    ),
    "espalier search serve": (
        ["search", "serve", "--port", "{port}"],
        r"searching",
        "/health",
        "/search",
        b'{"query": "capital"}',
    ),
    "espalier review --page": (
        ["review", "pairs.jsonl", "--sample", "0", "--page", "--port", "{port}"],
        r"Decide at http",
        "",
        "",
        b"verdict=skip",
    ),
}


def drill(name, project, seconds=300):
    """{answered, of, idle} of one service."""
    port = free_port()
    words, ready, get, post, body = SERVICES[name]
    log = project / f"{name.split()[1]}.log"
    with log.open("wb") as out:
        command = [*ESPALIER, *(w.replace("{port}", str(port)) for w in words)]
        env = {**os.environ, "PYTHONPATH": str(CODE), "PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(command, cwd=project, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        until = time.monotonic() + seconds
        while not (re.search(ready, log.read_text()) and up(port)):
            assert child.poll() is None and time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.3)
        link = re.search(r"http://127\.0\.0\.1:\d+(/\S*)?", log.read_text())
        path = link[1] if link and link[1] and "token=" not in link[1] else "/"
        token = re.search(r"(?:token=|^key: )(\S+)", log.read_text(), re.MULTILINE)
        known = {}
        if token:
            known["Authorization"] = f"Bearer {token[1]}"
        if token and "schedule" in words[:1]:
            known["Authorization"] = "Basic " + base64.b64encode(f"espalier:{token[1]}".encode()).decode()
        answered = foreign.accepted(port, get=get or path, post=post or path, body=body, **known)
        held = []
        for i in range(280):
            try:
                held.append(socket.create_connection(("127.0.0.1", port), 5))
                held[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127"[: i % 25])
            except OSError:
                pass
        try:
            status = foreign.ask(port, "GET", get or path, known, seconds=10)[0]
        except OSError:
            status = 0
        for s in held:
            s.close()
        return {"answered": len(answered), "of": 40, "beside 280 idle connections": status == 200}
    finally:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def up(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="*", default=list(SERVICES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        subprocess.run(
            [*ESPALIER, "init", str(project)], check=True, env={**os.environ, "PYTHONPATH": str(CODE)}, stdout=2
        )
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "drill"], cwd=project, check=True)
        build = ["kb", "build", "--world", "8", "--out", "artifacts/kb"]
        subprocess.run(
            [*ESPALIER, *build], cwd=project, check=True, env={**os.environ, "PYTHONPATH": str(CODE)}, stdout=2
        )
        save_model(exported.build("qwen3"), exported.tokenizer(), project / "model")
        row = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
        pairs = [json.dumps({**row, "prompt": f"{i} + 2?"}) for i in range(100)]
        (project / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
        out = {}
        for name in args.services:
            out[name] = drill(name, project)
            print(name, out[name], file=sys.stderr, flush=True)
    print(json.dumps(out, indent=1))
    sys.exit(any(x["answered"] or not x["beside 280 idle connections"] for x in out.values()))


if __name__ == "__main__":
    main()
