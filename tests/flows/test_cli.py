"""The command line: fast to start, one sentence for a mistake, and what each command prints."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from flows import cli
from flows.overrides import merged, of_profile, overrides
from tasks.core.errors import UserError
from tasks.core.paths import CODE
from tasks.planning import plan
from tasks.planning.resolve import check_params, resolve
from tasks.core.config import read_yaml
from tasks.runtime import dvc
from tasks.storage import commit


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A project made by `espalier init`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    assert cli.main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    capsys.readouterr()
    return tmp_path / "mine"


def said(capsys, *args, code=0):
    assert cli.main(list(args)) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


def test_a_project_begins_with_the_default_run(project):
    """grpo names no preference loss, and DPO on cleaned pairs alone unlearns the families."""
    assert read_yaml(project / "params.yaml")["recipe"] == "default"
    stages, _ = resolve(check_params(read_yaml(project / "params.yaml"), project / "params.yaml"))
    assert stages["prefer"].params["sft_weight"] == 1.0


def test_the_first_screen_is_by_task_and_short_and_help_lists_every_command(capsys):
    def commands(text):
        return re.findall(r"^  ([a-z]+) {2,}", text, re.M)

    for words in ([], ["--help"], ["-h"]):
        try:
            cli.main(words)
        except SystemExit as e:
            assert e.code == 0
        first = capsys.readouterr().out
        tasks = [line.rstrip(":") for line in first.splitlines() if line.endswith(":") and line[0] != " "]
        assert tasks == ["start here", "your data", "train", "look", "operate"]
        assert 5 <= len(commands(first)) < 12
        assert len(first.splitlines()) <= 40 and "espalier help" in first
    known = cli.parser()[1]
    for words in (["help"], ["--help", "--all"]):
        assert sorted(commands(said(capsys, *words))) == sorted(known)  # each once
    with pytest.raises(SystemExit) as end:
        cli.main(["help", "run"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("usage: espalier run ")
    assert "did you mean 'run'" in said(capsys, "help", "rum", code=2)


def test_help_imports_nothing_heavy():
    script = "import sys, atexit\natexit.register(lambda: print(sorted({m.split('.')[0] for m in sys.modules})))\n"
    script += "from flows.cli import main\nmain(['--help'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=CODE)
    assert "  run  " in done.stdout
    loaded = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    assert not {"torch", "pandas", "numpy", "mlflow", "dvc", "prefect", "transformers", "yaml"} & set(loaded)


def test_init_makes_a_project_that_plans(project, capsys):
    assert subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, cwd=project).stdout == ""
    assert {p.name for p in project.iterdir()} >= {".dvc", ".gitignore", "dvc.yaml", "params.yaml", "data", "pieces"}
    (project / "pieces/advantage").mkdir(parents=True)
    (project / "pieces/advantage/mine.py").write_text(
        '"""Mine."""\ndef mine(groups, rewards, state, rng, *, scale: float = 1.0): ...\n'
    )
    (project / "pieces/recipes").mkdir(parents=True)
    (project / "pieces/recipes/my-own.yaml").write_text(
        "id: my-own\nextends: grpo\ntitle: Mine\nstages: {rl: {advantage: {piece: mine, scale: 0.5}}}\n"
    )
    plans = plan.plans(project, changed=lambda params: {**params, "recipe": "my-own"})
    assert (
        plans["rl"]["params"]["advantage"] == {"piece": "mine", "scale": 0.5}
        and "own/advantage/mine.py" in plans["rl"]["sources"]
    )
    assert plans["kb"]["params"]["sources"][0]["path"] == "data/facts.csv"
    assert "my-own" in said(capsys, "recipes")


def test_init_refuses_what_would_overwrite(project, tmp_path, capsys):
    assert "not empty: name a new folder" in said(capsys, "init", str(project), code=2)
    assert "inside the source tree" in said(capsys, "init", str(CODE / "sub"), code=2)


def test_a_control_project_has_the_stages_of_the_checkout_that_a_policy_of_actions_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said(capsys, "init", "--control", "poles")
    poles = tmp_path / "poles"
    names = {p.relative_to(poles).as_posix() for p in poles.rglob("*") if p.is_file() and ".git/" not in str(p)}
    assert {"dvc.yaml", "params.yaml", "prefect.yaml", ".gitignore", "pieces/README.md"} <= names
    assert not any(n.startswith(("data/", "control/")) for n in names)
    whole, ours = read_yaml(CODE / "flows/template/graph.yaml"), read_yaml(poles / "dvc.yaml")
    assert ours["stages"].keys() == {"plan", "rl"} and ours["stages"]["plan"] == whole["stages"]["plan"]
    assert ours["stages"]["rl"]["cmd"] == whole["stages"]["rl"]["cmd"]
    assert ours["stages"]["rl"]["deps"] == ["artifacts/plan/rl.json"]
    assert all(p in whole["plots"] for p in ours["plots"])
    assert not read_yaml(poles / "prefect.yaml")["deployments"][0]["parameters"][
        "promote"
    ]  # `evaluate` measures nothing
    monkeypatch.chdir(poles)
    assert plan.plans(poles)["rl"]["params"]["control"]["piece"] == "gymnasium"
    assert "  rl  (has not run yet)" in said(capsys, "run", "--dry-run", "--recipe", "lare")


@pytest.mark.parametrize("recipe", ["control-ppo", "lare", "dynamic-treerpo", "paccmann-rl-covid"])
def test_evaluate_of_a_policy_of_actions_is_refused_before_anything_runs(project, capsys, recipe):
    refused = said(capsys, "run", "--dry-run", "--recipe", recipe, code=2)
    assert "policy writes no text" in refused and "`espalier init --control DIR`" in refused
    assert refused.count("\n") == 1 and not (project / "artifacts").exists()
    said(capsys, "show", recipe)
    said(capsys, "run", "--dry-run", "--recipe", recipe, "--set", "evaluate.models=[base, sft]")


def test_rl_of_actions_that_evaluate_does_not_read_is_planned(project, capsys):
    graph = (project / "dvc.yaml").read_text(encoding="utf-8")
    assert graph.count("    - artifacts/rl\n") == 1
    (project / "dvc.yaml").write_text(graph.replace("    - artifacts/rl\n", ""), encoding="utf-8")
    said(capsys, "run", "--dry-run", "--recipe", "lare")


def test_the_graph_of_a_project_is_the_graph_of_the_checkout():
    ours, theirs = (read_yaml(p) for p in (CODE / "dvc.yaml", CODE / "flows/template/graph.yaml"))
    assert theirs["stages"].pop("plan") == {k: v for k, v in ours["stages"].pop("plan").items() if k != "deps"} | {
        "always_changed": True
    }
    assert ours == theirs


def commands(graph):
    """Stage -> the command of a graph. `-P` keeps the project's folder from the import path."""
    found = {name: stage["cmd"] for name, stage in read_yaml(graph)["stages"].items()}
    assert found == {name: f"python -P -m flows.{name}" for name in found} and "plan" in found
    return found


def test_no_folder_of_a_project_can_take_the_place_of_ours(project, tmp_path, monkeypatch, capsys):
    """Every stage of the checkout, of the templates and of a new project is started with `-P`: without it a user's own
    folder `tasks` would be imported in the place of ours."""
    templates = sorted((CODE / "flows/template").rglob("graph.yaml")) + sorted(
        (CODE / "flows/template").rglob("dvc.yaml")
    )
    assert len(templates) == 2
    whole, *smaller = (commands(p) for p in (CODE / "dvc.yaml", *templates, project / "dvc.yaml"))
    assert len(whole) == 13 and whole in smaller and all(one.items() <= whole.items() for one in smaller)
    monkeypatch.chdir(tmp_path)
    said(capsys, "init", "--control", "poles")
    assert commands(tmp_path / "poles/dvc.yaml").keys() == {"plan", "rl"}
    for package in ("tasks", "flows", "training", "synth"):
        (project / package).mkdir()
        (project / package / "__init__.py").write_text("raise SystemExit('a folder of the project')\n")
    command = [sys.executable, *whole["plan"].split()[1:]]
    done = subprocess.run(
        command, cwd=project, env={**os.environ, "PYTHONPATH": str(CODE)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (project / "artifacts/plan/rl.json").exists()


def test_every_artifact_that_dvc_names_is_written_by_a_stage():
    graph = read_yaml(CODE / "dvc.yaml")
    outs = [out for s in graph["stages"].values() for out in s["outs"]]
    named = graph["artifacts"]
    assert {"model", "questions", "pairs"} <= named.keys() and all(re.fullmatch(r"[a-z][a-z0-9-]*", n) for n in named)
    for about in named.values():
        assert any(about["path"].startswith(f"{out}/") for out in outs), about
        assert about["type"] in ("model", "dataset") and about["labels"] and about["desc"]


def test_show_marks_what_the_recipe_changes(project, capsys):
    text = said(capsys, "show", "qae")
    assert "arXiv 2509.22611" in text and "mechanism:" in text
    assert '  * advantage: {"piece": "quantile", "k": 0.4, "eps": 1e-08}' in text
    assert "    steps: " in text


def test_a_recipe_beyond_text_says_how_small_it_is(project, capsys):
    scale = "the mechanism at about a thousandth of the paper's scale; no result of the paper is reproduced"
    for recipe in ("geo-r1", "mgpo-grounding", "lare", "carve3d", "counterfactual-t2i-prompts"):
        assert f"scale:\n  {scale}" in said(capsys, "show", recipe), recipe
    for recipe in ("qae", "control-ppo"):
        assert scale not in said(capsys, "show", recipe), recipe


@pytest.mark.parametrize(
    "args, words",
    [
        (
            ["run", "--recipe", "gpro"],
            ["no recipe 'gpro': did you mean 'grpo', ", " or ", "? (the nearest of ", "`espalier recipes`"],
        ),
        (["run", "--set", "rl.stepz=3"], ["error: --set rl.stepz: unknown", "did you mean 'steps'"]),
        (["run", "--set", "rl.steps=three"], ["error: --set rl.steps must be int, not 'three'"]),
        (["run", "--set", "rl.optimizer.lrr=3"], ["error: --set rl.optimizer.lrr: unknown key 'lrr'"]),
        (["run", "--set", "rll.steps=3"], ["error: --set rll.steps: unknown stage 'rll'"]),
        (["run", "--set", "seed=x"], ["error: --set seed must be a int"]),
        (["run", "--set", "rl.steps=-3"], ["error: --set rl.steps must be 0 or more, not -3 (number of steps"]),
        (["run", "--set", "rl.advantage.k=0.3"], ["no piece in use reads it", "quantile would"]),
        (
            ["run", "--set", f"rl.steps={10**30}"],
            [f"error: --set rl.steps must be between -2^63 and 2^63, not {10**30}"],
        ),
        (
            ["run", "--set", f"rl.control={{piece: key_door, size: {10**30}}}"],
            ["rl.control.size must be between -2^63 and 2^63"],
        ),
        (["run", "--set", "rl.steps"], ["write STAGE.KNOB=VALUE"]),
        (["run", "--set", "rl.samples_per_prompt=1"], ["compares at least 2 samples"]),
        (
            ["run", "--dry-run", "--recipe", "grpo", "--set", "rl.samples_per_prompt=1"],
            ["rl.samples_per_prompt to 2 or more, or choose rl.advantage among"],
        ),
        (
            ["run", "--dry-run", "--set", "rl.ratio={piece: sequence}", "--set", "rl.corrections=[{piece: masked}]"],
            [
                "correction/masked and ratio/sequence cannot be combined: masked leaves out single tokens",
                "use ratio token",
            ],
        ),
        (
            ["run", "--dry-run", "--recipe", "gspo", "--set", "rl.corrections=[{piece: masked}]"],
            ["cannot be combined", "or the correction truncated"],
        ),
        (
            ["run", "--dry-run", "--set", "rl.advantage={piece: gae}"],
            [
                "needs value, which is there only where rl.critic.loss is set: set it to one of",
                "or choose rl.advantage among",
            ],
        ),
        (
            ["run", "--dry-run", "--set", "rl.optimiser.lr=1e-3"],
            ["error: --set rl.optimiser.lr: unknown key 'optimiser' of the stage rl: did you mean 'optimizer'"],
        ),
        (["show", "gpro"], ["did you mean 'grpo'"]),
        (["recipe"], ["no command 'recipe'", "did you mean 'recipes'"]),
        (["promote"], ["has not been trained and evaluated yet: `espalier run` first"]),
    ],
)
def test_mistakes_are_one_sentence_before_anything_starts(project, capsys, monkeypatch, args, words):
    monkeypatch.setattr(dvc, "run", lambda *a, **k: pytest.fail("started DVC"))
    text = said(capsys, *args, code=2)
    assert text.startswith("error: ") and text.count("\n") == 1 and all(w in text for w in words), text


def test_what_params_yaml_says_wrongly_is_not_blamed_on_set(project, capsys):
    (project / "params.yaml").write_text("set: {rl: {stepz: 3}}\n")
    assert said(capsys, "run", "--set", "rl.steps=3", code=2).startswith("error: params.yaml: set.rl.stepz: ")


def test_a_missing_params_yaml_and_a_missing_repository_are_said(project, capsys):
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").unlink()
    for command in (["run", "--dry-run"], ["preview", "kb"], ["gc"]):
        assert "params.yaml does not exist, and it says what a run is: `git checkout" in said(capsys, *command, code=2)
    (project / "params.yaml").write_text(text)
    shutil.rmtree(project / ".git")
    assert "is not in a git repository, in which DVC keeps" in said(capsys, "run", code=2)
    assert "has no commit yet: `git init" in said(capsys, "compare", "HEAD", code=2)


@pytest.mark.parametrize("command", [["status"], ["stop", "x"], ["deploy"], ["worker", "x"]])
def test_without_a_server_the_first_thing_to_do_is_said(project, capsys, monkeypatch, command):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert "no Prefect server runs" in said(capsys, *command, code=2)
    shutil.rmtree(project / ".git")
    assert "has no commit yet: `git init" in said(capsys, *command, code=2)
    (project / "dvc.yaml").unlink()
    assert "holds no dvc.yaml: change to a project" in said(capsys, *command, code=2)


@pytest.mark.parametrize(
    ("words", "usage", "near"),
    [
        (["preview", "kb", "--sett", "x"], "usage: espalier preview ", "did you mean '--set'"),
        (["kb", "build", "--outt", "x", "--out", "y"], "usage: espalier kb build ", "did you mean '--out'"),
        (["run", "kb"], "usage: espalier run ", "unrecognized arguments: kb"),
    ],
)
def test_what_a_command_does_not_take_is_said_with_its_own_usage(capsys, words, usage, near):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    err = capsys.readouterr().err
    assert end.value.code == 2 and err.startswith(usage) and near in err


@pytest.mark.parametrize(
    "command", [["preview", "kb", "-n", "-1"], ["review", "x.jsonl", "--sample", "-2"], ["status", "--last", "x"]]
)
def test_counts_of_commands_are_not_negative(capsys, command):
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert ended.value.code == 2 and f"{command[-1]} is no count: give a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["ui", "search serve", "review data/facts.jsonl --sample 0 --page", "serve sft", "schedule"]
)
def test_a_port_in_use_is_one_sentence(project, capsys, monkeypatch, command):
    monkeypatch.setattr("tasks.knowledge.bases.index", lambda *a: pytest.fail("loaded before the port was asked for"))
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    (project / "data/facts.jsonl").write_text(json.dumps(pair) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = said(capsys, *command.split(), "--port", port, code=2)
    assert text == f"error: port {port} is in use: name another with --port\n"


def test_outside_a_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "`espalier init DIR`" in said(capsys, "run", code=2)


def test_dry_run_says_what_and_why(project, capsys, monkeypatch):
    monkeypatch.setattr(dvc, "run", lambda *a, **k: pytest.fail("started DVC"))
    assert "  kb  (has not run yet)" in said(capsys, "run", "--dry-run")
    plan.write(project)
    for stage in plan.written(project):
        (project / ("reports" if stage == "report" else f"artifacts/{stage}")).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(dvc, "changed_data", lambda root: {"clean": ["artifacts/preferences (modified)"]})
    text = said(capsys, "run", "--dry-run", "--recipe", "qae", "--set", "rl.steps=7")
    assert (
        'advantage.piece: "grpo" -> "quantile"' in text
        and "training/rl/advantage/quantile.py changed" in text
        and "-> 7" in text
    )
    assert "  clean  (artifacts/preferences (modified))" in text and "  evaluate  (if what it reads changes)" in text
    assert "  kb" not in text


def test_run_asks_dvc_and_prints_the_table(project, capsys, monkeypatch):
    commands = []
    monkeypatch.setattr(dvc, "run", lambda args, root, extra=None, **_: commands.append((args, extra)) or 0)
    monkeypatch.setattr("tasks.tracking.spool.shipped", lambda *args, **more: contextlib.nullcontext())
    (project / "reports").mkdir()
    cell = {"mean": 0.5, "low": 0.45, "high": 0.55, "n": 300}
    (project / "reports/summary.json").write_text(
        json.dumps(
            {
                "models": {
                    "sft": {
                        "pass@1": cell,
                        "ece": cell,
                        "tokens_per_right": {"mean": None, "low": None, "high": None, "n": 0},
                    },
                    "rl": {"pass@1": {**cell, "mean": 0.6}, "ece": cell, "tokens_per_right": {**cell, "low": None}},
                },
                "families": {
                    "sft": {"countdown": {"pass@1": cell}},
                    "rl": {"countdown": {"pass@1": cell}, "sudoku": {}},
                },
                "sets": {"mine": {"rl": {"pass@1": {**cell, "mean": 0.7}}}},
                "difference": {"rl - sft": {**cell, "mean": 0.1}},
            }
        )
    )
    (project / "reports/index.html").write_text("<html></html>")
    commit.seal(project / "reports")
    text = said(capsys, "run")
    assert commands[0][0] == ["repro"] and commands[0][1]["ESPALIER_EXECUTION"].startswith("run-")
    assert "sft    0.500 [0.450, 0.550]  -" in text and "reports/index.html" in text
    assert "rl     0.600 [0.450, 0.550]  0.500\n" in text and "ece" not in text, (
        "the main metrics, and a dash for one that does not exist"
    )
    assert "sft               0.500 [0.450, 0.550]  -" in text and "countdown" in text, "families too"
    assert "0.700 [0.450, 0.550]" in text and "rl - sft    0.100 [0.450, 0.550]" in text
    said(capsys, "run", "--recipe", "qae", "--set", "rl.optimizer.lr=1e-4", "--set", "seed=3")
    assert commands[1][0] == [
        "exp",
        "run",
        "-S",
        "++recipe='qae'",
        "-S",
        "++set.rl.optimizer.lr=0.0001",
        "-S",
        "++seed=3",
    ]
    monkeypatch.setattr(dvc, "run", lambda args, root, extra=None, **_: 1)
    assert "What was finished stays finished" in said(capsys, "run", code=1)


def test_who_asks_for_a_profile_gets_its_sizes(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("profile: cpu\nset: {rl: {prompts_per_step: 24, include_families: true, steps: 7}}\n")
    changes = overrides(None, ["profile=real"])
    assert of_profile(path, changes) == {"set.rl.prompts_per_step": 4, "set.rl.steps": 16}
    mine = overrides(None, ["profile=real", "rl.prompts_per_step=2"])
    assert of_profile(path, mine) == {"set.rl.steps": 16}, "what is named stays"
    assert not of_profile(path, overrides(None, ["rl.steps=3"])) and not of_profile(tmp_path / "none", {})
    path.write_text("profile: real\nset: {rl: {steps: 7}}\n")
    assert not of_profile(path, changes), "what stands beside it in params.yaml was meant"


def test_overrides():
    assert overrides(None, ["rl.advantage={piece: quantile, k: 4e-1}", "profile=gpu"]) == {
        "set.rl.advantage": {"piece": "quantile", "k": 0.4},
        "profile": "gpu",
    }
    with pytest.raises(UserError, match="--set a, line"):
        overrides(None, ["a=[1"])
    assert merged({"set": {"rl": {"lr": 1}}}, {"set.rl.steps": 2, "seed": 3}) == {
        "set": {"rl": {"lr": 1, "steps": 2}},
        "seed": 3,
    }
    assert merged({"set": None}, {"set.rl.steps": 2}) == {"set": {"rl": {"steps": 2}}}


def test_doctor_names_what_is_missing_and_how_to_get_it(project, capsys, monkeypatch):
    from flows.cli import doctor

    told = said(capsys, "doctor")
    assert "ok  torch" in told and "compiled  " in told
    real = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: {"bm25s": "", "sqlalchemy": "2.1.9"}.get(name, real(name)))
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert (
        "NO  bm25s" in text
        and "to fix: bm25s: run `make install`" in text
        and "schedules would silently not fire" in text
    )


def test_accept_names_a_finding_of_the_audit():
    """The flag is the knob `rl.accept`; what no check can find is refused before anything runs."""
    from tasks.core.findings import accepted

    assert accepted([]) == [] and accepted(["executed", "grader"]) == ["rl.accept=[executed, grader]"]
    assert overrides(None, accepted(["executed"])) == {"set.rl.accept": ["executed"]}
    with pytest.raises(UserError, match="--accept execute: no check of the audit has this name.*executed"):
        accepted(["execute"])
