"""What makes a command line pleasant: completion, a schema for editors, JSON and quiet modes, a dry run that says what
it will cost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows import cli
from flows.cli.completion import SCRIPTS, words
from flows.cli.run import _table, seconds
from tasks.core.errors import UserError
from tasks.core.paths import CODE
from tasks.core.config import read_yaml
from tasks.planning.resolve import check_params, read_recipe, resolve, yaml_files
from tasks.planning.schema import recipe_schema, schema


@pytest.fixture(scope="module")
def json_schema():
    return schema()


def checker(json_schema):
    jsonschema = pytest.importorskip(
        "jsonschema", reason="the package jsonschema checks our schema against its own draft"
    )
    jsonschema.Draft7Validator.check_schema(json_schema)
    return jsonschema.Draft7Validator(json_schema)


def test_the_schema_takes_what_the_plan_takes_and_refuses_what_it_refuses(json_schema):
    check = checker(json_schema)
    assert check.is_valid(read_yaml(CODE / "params.yaml")) and check.is_valid(
        read_yaml(CODE / "flows/template/params.yaml")
    )
    good = {
        "set": {
            "rl": {
                "steps": 5,
                "optimizer": {"lr": 1e-3},
                "advantage": {"piece": "quantile", "k": 0.4},
                "filters": [{"piece": "spread"}],
            }
        }
    }
    assert check.is_valid(good) and check.is_valid({"set": {"rl": {"advantage": "rank-weighted"}}})
    assert check.is_valid({"set": {"rl": {"advantage": {"k": 0.3}}}}), "changed knobs of the piece in use"
    fields = json_schema["properties"]["set"]["properties"]["rl"]["properties"]["optimizer"]["properties"]
    assert fields["warmup"]["default"] == 5 and fields["warmup"]["description"].startswith("steps over which")
    assert fields["kind"]["enum"] == ["adamw", "muon", "sgd"]
    assert check.is_valid({"set": {"rl": {"critic": {"loss": "squared"}}}})
    for wrong in (
        {"set": {"rl": {"lr": 1e-3}}},
        {"set": {"rl": {"optimizer": {"lrr": 1e-3}}}},
        {"set": {"rl": {"optimizer": "muon"}}},
        {"set": {"rl": {"critic": {"loss": "sqared"}}}},
        {"steps": 5},
        {"set": {"rll": {}}},
        {"set": {"rl": {"stepz": 5}}},
        {"set": {"rl": {"steps": "five"}}},
        {"set": {"rl": {"advantage": "quantil"}}},
        {"set": {"rl": {"advantage": {"piece": "quantile", "kk": 1}}}},
        {"recipe": "grpoo"},
    ):
        assert not check.is_valid(wrong), wrong


def test_every_recipe_and_profile_fits_the_schema(json_schema):
    check = checker(json_schema)
    for folder in ("recipes", "profiles"):
        for name, path in yaml_files(folder).items():
            errors = list(check.iter_errors({"set": read_yaml(path).get("stages") or {}}))
            assert not errors, f"{name}: {errors[0].message[:300]}"


def test_every_recipe_fits_the_schema_of_recipes_and_a_slip_does_not():
    valid = checker(recipe_schema())
    assert {name: e.message for name in yaml_files("recipes") for e in valid.iter_errors(read_recipe(name))} == {}
    recipe = read_recipe("dapo")
    for slip in (
        {"titel": "x"},
        {"source": "known"},
        {"extends": "gpro"},
        {"stages": {"rl": {"learning_rate": 1}}},
        {"stages": {"rl": {"advantage": "gpro"}}},
        {"checks": [{"name": "x", "piece": "training.advantage/grpo", "given": {}, "expect": {}}]},
    ):
        assert not valid.is_valid({**recipe, **slip}), slip


def test_knobs_are_described_in_the_schema_in_show_and_in_a_refusal(json_schema, capsys):
    about = "largest KL between sampler and learner, in nats per token of on-policy steps; above it the run stops"
    knob = json_schema["properties"]["set"]["properties"]["rl"]["properties"]["max_mismatch"]
    assert knob["description"] == about
    assert cli.main(["show", "grpo"]) == 0
    assert f"max_mismatch: 0.05  # {about}" in capsys.readouterr().out
    with pytest.raises(
        UserError, match="rl.max_mismatch must be float, not 'x' .largest KL between sampler and learner"
    ):
        resolve(check_params({"set": {"rl": {"max_mismatch": "x"}}}, Path("params.yaml")))


def test_schema_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["schema", "--write", ".espalier/schema.json"]) == 0
    assert "# yaml-language-server: $schema=.espalier/schema.json" in capsys.readouterr().out
    assert json.loads((tmp_path / ".espalier/schema.json").read_text())["properties"]["seed"]["type"] == "integer"


def test_completion_completes_commands_options_recipes_and_states():
    assert words(["comp"]) == ["compare", "completion"] and "run" in words([""])
    assert (
        words(["run", "--re"]) == ["--recipe"]
        and "dapo" in words(["run", "--recipe", "da"])
        and words(["show", "gsp"]) == ["gspo"]
    )
    assert words(["lineage", "cha"]) == ["champion"] and "workspace" in words(["compare", "HEAD", ""])
    assert (
        words(["completion", ""]) == ["bash", "zsh", "fish", "words"]
        and words(["nothing", "x"]) == []
        and words(["review", "data/"]) == []
    )


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_scripts_are_valid(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here, so its script cannot be read by it")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_bash_completes(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed here")
    (tmp_path / "espalier").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from flows.cli import main; import sys; sys.exit(main())' \"$@\"\n"
    )
    (tmp_path / "espalier").chmod(0o755)
    script = f"{SCRIPTS['bash']}\nCOMP_WORDS=(espalier show gsp); COMP_CWORD=2; _espalier; echo ${{COMPREPLY[@]}}"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CODE)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=CODE, env=env)
    assert done.stdout.strip() == "gspo", done.stderr


def test_the_estimate_grows_with_the_steps(tmp_path):
    folder = tmp_path / ".espalier/measured"
    folder.mkdir(parents=True)
    for name, s in (("rl", 100.0), ("kb", 1.0)):
        (folder / f"{name}.json").write_text(json.dumps({"seconds": s, "peak_rss_mb": 1.0}))
    old, new = ({"rl": {"params": {"steps": n}}, "kb": {"params": {}}} for n in (50, 100))
    assert seconds(tmp_path, old, new) == {"rl": 200.0, "kb": 1.0}


def test_a_dry_run_says_how_long_it_will_take(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    folder = tmp_path / "mine/.espalier/measured"
    folder.mkdir(parents=True)
    (folder / "kb.json").write_text(json.dumps({"seconds": 7200.0, "peak_rss_mb": 1.0}))
    capsys.readouterr()
    assert cli.main(["run", "--dry-run", "--set", "report.price_per_hour=2.5"]) == 0
    output = capsys.readouterr().out
    assert (
        "kb  (has not run yet)  ~2.0 h" in output
        and "At most about 2.0 h, 5 at 2.5 an hour" in output
        and "not known: questions" in output
    )


def test_quiet_and_json_leave_stdout_to_the_result(tmp_path):
    script = f"""
import sys, os
sys.path.insert(0, {str(CODE)!r})
from flows.cli import run
from tasks.runtime import dvc
from tasks.tracking import spool
from pathlib import Path
def reproduce(root, env, targets):
    os.system("echo dvc says something")
    Path("reports").mkdir(exist_ok=True); Path("reports/summary.json").write_text('{{"models": {{}}}}\\n')
    from tasks.storage import commit
    commit.seal(Path("reports"))
    return 0
dvc.reproduce = reproduce
from flows.cli import main
sys.exit(main(["run", sys.argv[1]]))
"""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params.yaml").write_text("tracking: off\n")
    for mode in ("--json", "--quiet"):
        done = subprocess.run([sys.executable, "-c", script, mode], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "dvc says something" in done.stderr
        assert json.loads(done.stdout) == {"models": {}} if mode == "--json" else done.stdout == ""


def test_the_end_of_a_run_names_what_is_there(tmp_path, capsys):
    def end():
        _table(tmp_path)
        return capsys.readouterr().out.splitlines()[-1]

    for stage, file in (("sft", "tokenizer_config.json"), ("rl", "config.json")):  # rl: a policy of actions
        (tmp_path / "artifacts" / stage / "model").mkdir(parents=True)
        (tmp_path / "artifacts" / stage / "model" / file).write_text("{}")
    assert end() == "Look next:  espalier ui (MLflow)   espalier chat artifacts/sft/model"
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "index.html").write_text("")
    assert "reports/index.html" in end()
