"""The pages that people open, in a real browser against a real MLflow server: they load, curves are drawn, a trace
opens turn by turn."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import browser
import foreign
import pytest
from ports import free_port
from sealed import seal
from tests.tasks.tracking.test_observe import stage, write_episodes

from tasks.core.paths import CODE
from tasks.core import local
from tasks.tracking import observe, spool, ui

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        browser.BROWSER is None,
        reason="needs a browser: install chromium, then these tests open the pages of MLflow in it",
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A run with curves, a card and episodes in a store, and MLflow's server over it: (address, client, experiment,
    run)."""
    root = tmp_path_factory.mktemp("project")
    before, old = Path.cwd(), os.environ.get(spool.EXECUTION)
    os.chdir(root)
    os.environ[spool.EXECUTION] = "e1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    (root / "params.yaml").write_text("seed: 0\ntracking: off\n")
    (root / "artifacts/plan").mkdir(parents=True)
    s = stage(root, "evaluate")
    write_episodes(s.target / "episodes.jsonl", 2)
    with spool.recording(s):
        s.episodes(s.out / "episodes.jsonl", 4)
    (root / "params.yaml").write_text("seed: 0\n")
    seal(root)
    with observe.shipping(root, 60.0) as ship:
        client = ship.all().client
        assert ship.problem == ""
        experiment = ship.experiment
    run = next(
        r for r in client.search_runs([experiment]) if r.data.tags.get("espalier.stage") == "evaluate"
    ).info.run_id
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "import sys; from flows.cli import main; sys.exit(main())",
        "ui",
        "--port",
        str(port),
    ]
    with (root / "server.log").open("w") as log:
        server = subprocess.Popen(
            command,
            cwd=root,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(CODE)},
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait(address, server, root / "server.log")
        yield address, client, experiment, run
    finally:
        os.killpg(server.pid, 15)
        server.wait(300)
        os.chdir(before)
        os.environ.pop(spool.EXECUTION, None) if old is None else os.environ.__setitem__(spool.EXECUTION, old)


def wait(address, server, log):
    for _ in range(3000):
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server does not answer: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def page(served, tmp_path_factory):
    with browser.page(tmp_path_factory.mktemp("browser")) as shown:
        shown.open(
            local.link(served[0], ui.token(Path.cwd())), until="location.search == '' && location.pathname == '/'"
        )
        yield shown


def test_curves_are_drawn(served, page):
    address, _, experiment, run = served
    page.open(
        f"{address}/#/experiments/{experiment}/runs/{run}/model-metrics",
        until="document.querySelectorAll('.js-plotly-plot path.js-line').length",
    )
    assert "loss" in page.text() and "Failed to load" not in page.text()


def test_the_list_of_runs_opens(served, page):
    address, _, experiment, _ = served
    page.open(f"{address}/#/experiments/{experiment}/runs", until="document.body.innerText.includes('2 matching runs')")
    assert "Failed to load" not in page.text()


def test_a_trace_opens_turn_by_turn(served, page):
    address, client, experiment, _ = served
    trace = client.search_traces(locations=[experiment])[0].info.trace_id
    page.open(
        f"{address}/#/experiments/{experiment}/traces?selectedEvaluationId={trace}",
        until="document.body.innerText.includes('turn 2')",
    )
    text = page.text()
    assert text.index("turn 1") < text.index("search") < text.index("turn 2")
    assert "<b>Norvia</b>" in text, "markup of a question is text"


def test_the_card_of_a_run_can_be_read(served):
    address, _, _, run = served
    known = {"Authorization": f"Bearer {ui.token(Path.cwd())}"}
    card = urllib.request.Request(f"{address}/get-artifact?path=card.json&run_uuid={run}", headers=known)
    with urllib.request.urlopen(card, timeout=300) as answer:
        assert json.load(answer)["produced"] == 3


def test_a_page_of_another_site_reaches_nothing(served, page):
    """In the browser that holds the cookie of MLflow's pages."""
    address, client, _, _ = served
    experiments = "/api/2.0/mlflow/experiments/create"
    about = {"get": "/ajax-api/3.0/mlflow/assistant/config", "post": experiments, "body": '{"name": "taken"}'}
    with foreign.site() as elsewhere:
        outcomes = foreign.in_browser(page, elsewhere, int(address.rpartition(":")[2]), **about)
    assert {what for _, what in map(tuple, outcomes)} == {"refused"}, outcomes
    assert client.get_experiment_by_name("taken") is None


def test_curves_over_seeds_are_bands_in_the_page_and_lines_in_mlflow(served, page, tmp_path):
    from tasks.results import curves_page as curves
    from tasks.results.curves import over

    address, client, experiment, _ = served
    values = [[0.1 * i + 0.05 * s * i for i in range(8)] for s in range(3)]
    reward = {"dapo <b>": {"step": list(range(8)), "values": values} | over(values)}
    group = {"name": "dapo <b>", "recipe": "dapo", "seeds": [0, 1, 2], "states": ["s0", "s1", "s2"]}
    comparison = {"groups": [group], "curves": {"rl": {"reward": reward}}, "scores": {}, "copies": [], "missing": []}
    html = tmp_path / "curves.html"
    html.write_text(curves.page(comparison))
    page.size(380, 800)
    page.open(html.as_uri(), until="document.querySelector('main section')")
    assert page.run("document.documentElement.scrollWidth") <= 380
    box = "(b => b.width * b.height)(document.querySelector('svg .band').getBoundingClientRect())"
    assert page.run(box) > 500 and page.run("getComputedStyle(document.querySelector('svg .band')).fill") != "none"
    page.size(1400, 900)
    logged = observe.curves(Path.cwd(), comparison, html)
    (run,) = (r.info.run_id for r in client.search_runs([experiment]) if r.info.run_id in logged[0])
    drawn = "document.querySelectorAll('.js-plotly-plot path.js-line').length >= 3"
    page.open(f"{address}/#/experiments/{experiment}/runs/{run}/model-metrics", until=drawn)
    assert all(name in page.text() for name in ("reward_low", "reward_high"))
    page.open(
        f"{address}/#/experiments/{experiment}/runs/{run}/artifacts/curves.html",
        until="document.querySelector('iframe')",
    )
    assert "Failed to load" not in page.text()


def test_the_report_fits_a_phone_and_has_a_dark_side(page, tmp_path):
    import test_report

    test_report.make(tmp_path)
    test_report.run(tmp_path)
    page.size(380, 800)
    page.open((tmp_path / "reports/index.html").as_uri(), until="document.querySelector('main section')")
    assert page.run("document.documentElement.scrollWidth") <= 380, "nothing but tables and graphs scrolls sideways"
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.size(1100, 900, dark=True)
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    assert page.run("document.querySelectorAll('script').length") == 0
