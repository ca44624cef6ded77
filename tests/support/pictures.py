"""`make pictures`, second half: MLflow's pages of a project in which a run has finished, as the README shows them.

python -m tests.support.pictures [PROJECT] takes docs/images/mlflow-curves.png (the RL stage) and mlflow-trace.png (the longest
conversation of the RL model that ended right).
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import browser  # noqa: E402
from ports import free_port  # noqa: E402


@contextlib.contextmanager
def served(store):
    """The address of MLflow's server over a store."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
    }
    server = subprocess.Popen([*command, "--backend-store-uri", store], start_new_session=True, **quiet)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def main(project):
    if browser.BROWSER is None:
        raise SystemExit("needs a browser: install chromium")
    import mlflow

    from tasks.tracking import observe

    store = observe.uri(project)
    client = mlflow.MlflowClient(store)
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    run = next((r for r in runs if r.data.tags.get("espalier.stage") == "rl" and "reward" in r.data.metrics), None)
    if run is None:
        raise SystemExit(f"{project} has no finished run of the stage rl: `make run` first")
    experiment = run.info.experiment_id
    traces = client.search_traces(locations=[experiment])
    trace = max(traces, key=lambda t: (t.data.spans[0].name == "rl: right", len(t.data.spans)))
    pictures = CODE / "docs/images"
    with served(store) as address, tempfile.TemporaryDirectory() as profile, browser.page(Path(profile)) as page:
        page.size(1400, 1000)
        drawn = "document.querySelectorAll('.js-plotly-plot path.js-line').length > 4"
        page.open(f"{address}/#/experiments/{experiment}/runs/{run.info.run_id}/model-metrics", until=drawn)
        page.run("document.querySelector('[aria-label=\"Close\"]')?.click()")  # MLflow's assistant
        time.sleep(5)
        page.picture(pictures / "mlflow-curves.png")
        page.size(1400, 660)
        page.open(
            f"{address}/#/experiments/{experiment}/traces?selectedEvaluationId={trace.info.trace_id}",
            until="document.body.innerText.includes('turn 2')",
        )
        time.sleep(3)
        page.picture(pictures / "mlflow-trace.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
