"""The report: one page that shows everything, requests nothing, and escapes whatever a model wrote."""

import json
import re
import runpy
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sealed import seal

from synth.knowledge.kb import Fact
from synth.types import Demonstration, Message, Problem
from tasks.pages import cards as written
from tasks.pages import page, plots
from tasks.pages.flowchart import flowchart
from tasks.core.labels import TRAINED
from tasks.runtime.stage import Stage
from tasks.stages.report import DATA, chosen, headline, own_rows, report
from tasks.storage import pictures, tables

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
VOID = {"meta", "line", "circle", "path", "rect", "img", "br"}


def metric(mean, spread=0.05, n=300):
    return {"mean": mean, "low": max(0.0, mean - spread), "high": min(1.0, mean + spread), "n": n}


def make(root, difference=0.23):
    """A finished run: metrics of four models, cards, curves, episodes, one of them hostile."""
    rng = np.random.default_rng(0)
    means = {"base": 0.0, "sft": 0.38, "prefer": 0.41, "rl": 0.38 + difference}
    more = {
        "calls": metric(1.9),
        "tokens": metric(21.3),
        "ece": metric(0.12),
        "majority@8": metric(0.4),
        "tokens_per_right": metric(55.0),
    }
    models = {m: {"pass@1": metric(v), "pass@8": metric(min(1, v * 1.4)), **more} for m, v in means.items()}
    gap = {"mean": difference, "low": difference - 0.05, "high": difference + 0.05, "n": 300}
    metrics = {
        "models": models,
        "hops": {m: {str(h): {"pass@1": metric(v / h**0.7)} for h in (1, 2, 3)} for m, v in means.items()},
        "families": {
            m: {f: {"pass@1": metric(v / 3)} for f in ("countdown", "linear_equations", "list_sorting")}
            for m, v in means.items()
        },
        "difference": {
            "base - sft": metric(0.0) | {"mean": -0.38, "low": -0.43, "high": -0.33},
            "prefer - sft": metric(0.0) | {"mean": -0.032, "low": -0.058, "high": -0.006, "p_holm": 0.018},
            "rl, search blanked - rl": metric(0.0) | {"mean": -0.5, "low": -0.6, "high": -0.4},
            "rl - sft": gap,
        },
        "blanked": {"rl": {"pass@1": metric(0.04)}},
        "reliability": {
            "rl": [{"confidence": 0.3, "right": 0.25, "n": 40}, {"confidence": 0.9, "right": 0.95, "n": 160}]
        },
        "sets": {"mine <b>": {m: {"pass@1": metric(v / 2)} for m, v in means.items()}},
        "outcomes": {
            m: {
                "right": int(2400 * v),
                "wrong": 500,
                "malformed": int(1900 * (1 - v)),
                "out_of_calls": 30,
                "truncated": 60,
                "unscorable": 0,
            }
            for m, v in means.items()
        },
    }
    folder = root / "artifacts" / "evaluate"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "card.json").write_text(json.dumps({"samples": 8, "temperature": 1.0}))
    fact = Fact.make("city:Zelton", "mayor", literal="Karo", source="data/mine.csv line 7", span=f"Zelton,mayor,{EVIL}")
    question = Problem.make(
        prompt=f"Who is the mayor of {EVIL}?",
        answer="Karo",
        verifier="exact",
        family="entity_tree",
        split="train",
        lineage={"facts": [fact.id], "root": "city:Zelton"},
    )
    messages = [*question.prompt, Message(role="assistant", content="<answer>Karo</answer>")]
    tables.write(root / "artifacts/kb/facts.parquet", [fact], Fact)
    tables.write(root / "artifacts/questions/problems.parquet", [question], Problem)
    tables.write(
        root / "artifacts/demonstrations/demonstrations.parquet",
        [Demonstration.make(problem=question.id, messages=messages, split="train")],
        Demonstration,
    )
    talk = [
        ("user", "What is the currency of the country with capital Zelton?"),
        ("assistant", "<search>country with capital Zelton</search>"),
        ("tool", "The capital of Norvia is Zelton.\nThe capital of Karo is Zelt."),
        ("assistant", "<search>currency of Norvia</search>"),
        ("tool", "The currency of Norvia is the orrel."),
        ("assistant", "<answer>the orrel</answer>"),
    ]
    with (folder / "episodes.jsonl").open("w") as f:
        for run, model in [
            ("base", "base"),
            ("sft", "sft"),
            ("rl", "rl"),
            ("rl, families", "rl"),
            ("rl, search blanked", "rl"),
        ]:
            for i in range(30):
                messages = [{"role": r, "content": c} for r, c in talk]
                if i % 3 == 0:
                    messages[-1] = {"role": "assistant", "content": f"<answer>{EVIL}</answer>{EVIL}"}
                    messages[0] = {"role": "user", "content": f"Who is {EVIL}?"}
                e = {
                    "run": run,
                    "model": model,
                    "blanked": "blanked" in run,
                    "problem": f"p{i}",
                    "sample": 0,
                    "env": "search",
                    "family": "entity_tree",
                    "hops": 2,
                    "score": 1.0,
                    "outcome": "wrong" if i % 3 == 0 else "right",
                    "calls": 2,
                    "turns": 3,
                    "tokens": 22,
                    "answer": "the orrel",
                    "messages": messages,
                }
                f.write(json.dumps(e) + "\n")
    for name in (*DATA, *TRAINED):
        (root / "artifacts" / name).mkdir(exist_ok=True)
        card = {"stage": name, "seed": 0, "recipe": "qae" if name == "rl" else ""}
        if name in DATA:
            card |= {
                "produced": 6400,
                "accepted": 6000,
                "quarantined": {"not_unique": 250, "too_long": 150},
                "gates": {"proof": "unique by SQL", "kinds": {"two_hops": 0.25, "least": [1, 2]}, "open": None},
            }
        (root / "artifacts" / name / "card.json").write_text(json.dumps(card))
    steps = np.arange(300)
    columns = {
        "step": steps,
        "reward": 0.4 + 0.25 * (1 - np.exp(-steps / 90)) + rng.normal(0, 0.04, 300),
        "entropy": 0.5 * np.exp(-steps / 200),
        "length": 22 + rng.normal(0, 1, 300),
        "mismatch_kl": np.abs(rng.normal(0, 1e-6, 300)),
        "learn_seconds": rng.random(300),
        "odd": [np.nan] * 300,
    }
    for name in TRAINED:
        loss = {
            "step": steps * 10,
            "loss": 4 * np.exp(-steps / 60) + 0.6 + rng.normal(0, 0.03, 300),
            "grad_norm": 1 + rng.random(300),
        }
        pd.DataFrame(columns if name == "rl" else loss).to_csv(root / "artifacts" / name / "curve.csv", index=False)
    measured = root / ".espalier" / "measured"
    measured.mkdir(parents=True)
    for i, name in enumerate((*DATA, *TRAINED, "evaluate")):
        (measured / f"{name}.json").write_text(json.dumps({"seconds": 3.0 + i * 17, "peak_rss_mb": 300 + 90 * i}))


def run(root, **changes):
    seal(root)
    stage = Stage("report", root=root, deps=["artifacts"])
    with stage.running():
        report(stage, **changes)
    return (root / "reports" / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    make(root)
    return root, run(root)


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in order; keeps tags and every attribute that could request something."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action", "data", "srcset")]
        assert not [k for k, _ in attributes if k.startswith("on")], f"an event handler in {tag}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_requests_nothing_and_runs_nothing(built):
    parser = Balanced()
    parser.feed(built[1])
    assert not parser.open
    assert not {"script", "iframe", "link", "object", "embed", "form", "img"} & set(parser.tags)
    assert all(link.startswith("#") for link in parser.links)
    assert "url(" not in built[1] and "@import" not in built[1]
    assert "&lt;script&gt;alert(1)" in built[1]


def test_everything_that_was_promised_is_on_the_page(built):
    html = built[1]
    assert html.count('<summary><span class="q">') == 20, "twenty episodes"
    assert "search: currency of Norvia" in html and "The currency of Norvia is the orrel." in html
    assert "61.0% <small>56.0 to 66.0</small>" in html, "pass@1 of the last model with its interval"
    assert "not_unique <b>250</b>" in html and "6,400" in html
    for axis in (
        "mean score",
        "entropy, nats per token",
        "tokens per rollout",
        "KL sampler to learner, nats",
        ">step<",
    ):
        assert axis in html
    assert "1,110 MB" in html or "1,200 MB" in html
    assert "Recipe: qae." in html


def test_a_recipe_that_changes_the_evaluation_alone_is_named(tmp_path):
    make(tmp_path)
    artifacts = tmp_path / "artifacts"
    (artifacts / "rl/card.json").write_text(json.dumps({"stage": "rl", "seed": 0, "recipe": ""}))
    assert "Recipe: the defaults." in run(tmp_path)
    (artifacts / "evaluate/card.json").write_text(json.dumps({"samples": 8, "recipe": "l2s-merging"}))
    assert "Recipe: l2s-merging." in run(tmp_path)
    assert "l2s-merging" in (tmp_path / "reports/model_card.md").read_text(encoding="utf-8")


def test_samples_that_rl_made_are_on_the_page(built, tmp_path):
    assert "Samples of step" not in built[1]
    make(tmp_path)
    folder = tmp_path / "artifacts/rl"
    picture = pictures.data_url(np.full((4, 4, 3), 5, np.uint8))
    talk = [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL, "pictures": [picture, "x.png"]}]
    one = {"group": "p/0", "outcome": "score 0.5", "parts": {"shape": 1.0}, "messages": talk}
    (folder / "samples.jsonl").write_text("".join(json.dumps({**one, "step": k}) + "\n" for k in (0, 40)))
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "samples": 2}))
    page = run(tmp_path)
    assert page.count(f'src="{picture}"') == 2 and "x.png" not in page and "<script" not in page
    for step in (0, 40):
        assert f"<h2>Samples of step {step}</h2>" in page
    assert "score 0.5, shape 1" in page


def test_metrics_calibration_sets_and_lineage_are_on_the_page(built):
    html = built[1]
    assert "calibration error" in html and "majority of 8" in html and "share right over confidence" in html
    assert "Test set mine &lt;b&gt;" in html and "tokens per right answer" in html
    assert "data/mine.csv line 7" in html and "The way of one row" in html and "trained on by" in html
    assert len(html) < 5_000_000


def test_money_is_shown_where_it_has_a_price(tmp_path):
    make(tmp_path)
    assert "At 3.6 an hour that is " in run(tmp_path, price_per_hour=3.6) and "an hour that" not in run(tmp_path)


def test_the_graph_of_stages():
    svg = flowchart(
        {"a": ("1 row", "sft"), "b<": ("2", "rl"), "c": ("3", "rl")}, {"b<": ["a"], "c": ["b<", "a", "gone"]}
    )
    assert svg.count("<rect") == 3 and svg.count('class="edge"') == 3 and "b&lt;" in svg
    places = [float(x) for x in re.findall(r'<rect class="[^"]*" x="([\d.]+)"', svg)]
    assert places == sorted(places) and len(set(places)) == 3, "each stands to the right of what it reads"


def test_cards_say_what_the_run_says_and_their_snippets_run(built, tmp_path, capsys, monkeypatch):
    import yaml
    from tiny import build, tokenizer

    from training.model.model import save_model

    text = (built[0] / "reports/model_card.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["model-index"][0]["results"][0]["metrics"][0] == {
        "type": "pass@1",
        "value": 0.61,
        "name": "pass@1 (95 % interval 0.5600 to 0.6600, n = 300)",
    }
    assert "| pass@8 |" in text and "With its search blanked it answers 4%." in text
    monkeypatch.chdir(built[0])
    save_model(build(), tokenizer(), built[0] / "artifacts/rl/model")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    for name in ("model_card", "data_card"):
        (code,) = re.findall(
            r"```python\n(.*?)```", (built[0] / f"reports/{name}.md").read_text(encoding="utf-8"), re.S
        )
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        runpy.run_path(str(tmp_path / f"{name}.py"))
        assert capsys.readouterr().out.strip()
    data = (built[0] / "reports/data_card.md").read_text(encoding="utf-8")
    assert (
        "not_unique 250" in data and yaml.safe_load(data.split("---\n")[1])["configs"][0]["config_name"] == "questions"
    )
    assert data.rstrip().endswith("print(rows.num_rows, rows[0])\n```"), "the last lines load it"
    assert "\\|" in written._table(["a|b"], [["c"]])


def test_no_value_of_a_card_is_printed_as_python_prints_it(built):
    root, html = built
    card = (root / "reports/data_card.md").read_text(encoding="utf-8")
    for text in (html, card.split("\n---\n", 1)[1]):
        assert "kinds" in text and "two hops 0.25, least 1, 2" in text
        assert not re.search(
            r"[{\[]['\"(]|&#39;: |\bNone\b|\bTrue\b",
            re.sub(r"(?s)<style.*?</style>|```.*?```|<code>.*?</code>", "", text),
        )


def test_differences_say_what_training_changed_and_the_summary_says_what_is_worse(built):
    root, html = built
    assert "<b>SFT − base</b>: +38.0 points, interval +33.0 to +43.0" in html
    assert "<b>RL, search blanked − RL</b>: -50.0 points" in html
    lead = re.search(r'<p class="lead">(.*?)</p>', html, re.DOTALL)[1]
    assert "preference is 3.2 points below SFT, p = 0.018." in lead and "below base" not in lead
    assert list(json.loads((root / "reports/summary.json").read_text())["difference"])[0] == "sft - base"


def test_numbers_of_axes_are_short():
    shown = {
        8e7: "80 M",
        1.5e6: "1.5 M",
        8e10: "80 G",
        25_000: "25k",
        2500: "2500",
        0.25: "0.25",
        1e-5: "1e-5",
        -3e6: "-3 M",
        0: "0",
    }
    assert {x: plots.label(x) for x in shown} == shown


def test_summary_has_the_agreed_shape(built):
    summary = json.loads((built[0] / "reports" / "summary.json").read_text())
    assert {"models", "seconds", "peak_rss_mb", "seeds", "families", "difference"} <= set(summary)
    assert set(summary["models"]["rl"]["pass@1"]) == {"mean", "low", "high", "n"}
    assert (
        summary["seeds"] == [0]
        and summary["peak_rss_mb"] == 1200
        and summary["seconds"] == sum(3.0 + i * 17 for i in range(11))
    )


def test_the_headline_says_what_the_interval_says(tmp_path):
    for difference, headline_text in (
        (0.23, "more than the SFT"),
        (0.01, "no measurable difference"),
        (-0.2, "less than the SFT"),
    ):
        root = tmp_path / headline_text.replace(" ", "_")
        make(root, difference)
        assert headline_text in headline(json.loads((root / "artifacts/evaluate/metrics.json").read_text()))


def test_a_run_from_the_cache_without_measurements_or_steps_still_reports(tmp_path):
    make(tmp_path)
    for path in (tmp_path / ".espalier" / "measured").iterdir():
        path.unlink()
    (tmp_path / "artifacts/reward/curve.csv").write_text("step,loss\n")
    (tmp_path / "artifacts/evaluate/episodes.jsonl").write_text("")
    html = run(tmp_path)
    assert "came from the cache" in html and "No step was recorded" in html and "No episode was recorded" in html
    assert json.loads((tmp_path / "reports/summary.json").read_text())["seconds"] is None


def test_episodes_are_drawn_without_looking_at_how_they_ended():
    played = [
        {"run": r, "model": r.partition(",")[0], "blanked": "blanked" in r, "problem": f"p{i}"}
        for r in ("sft", "rl", "rl, search blanked")
        for i in range(40)
    ]
    first = chosen(played, 20, seed=0)
    assert len(first) == 20 == len({(e["run"], e["problem"]) for e in first})
    assert sum(e["run"] == "rl" for e in first) >= 10 and chosen(played[::-1], 20, seed=0)[:15] == first[:15]
    assert {e["problem"] for e in first if e["run"] == "sft"} <= {e["problem"] for e in first if e["run"] == "rl"}
    assert len(chosen(played[:3], 20, seed=0)) == 3


def test_plots_survive_what_curves_hold():
    assert plots.lines({"rl": ([0, 1, 2], [np.nan] * 3)}, x="step", y="loss") == ""
    for y in ([1.0], [2.0, 2.0, 2.0], [0.0, np.inf, 1.0], list(np.linspace(1e-9, 3e-9, 5000)), [-1e6, 1e6]):
        svg = plots.lines({"rl": (range(len(y)), y)}, x="step", y="a < b & c")
        assert "nan" not in svg.replace("nan&", "") and "inf" not in svg and "a &lt; b &amp; c" in svg
        assert len(re.findall(r"[ M][\d.-]+,", svg)) <= 2 * 801, "a long curve is thinned"
    assert plots.ticks(0.21, 0.59) == [0.3, 0.4, 0.5] and plots.ticks(0, 299) == [0, 100, 200]
    constant = np.full(100, 3.0)
    assert plots.smooth(constant, 7) == pytest.approx(constant)
    line = np.arange(50.0)
    assert plots.smooth(line, 9) == pytest.approx(line), "a centred average does not shift a straight line"


def test_rows_of_an_episode_are_told_apart():
    talk = [{"role": role, "content": f"text {i}"} for i, role in enumerate(("user", "assistant", "user", "assistant"))]
    rest = dict.fromkeys(("outcome", "env", "family", "model", "run", "answer"), "x")
    assert "A row of its own" not in page.episode({"messages": talk, **rest})
    rewritten = page.episode({"messages": talk, "forks": [[2, None]], **rest})
    assert rewritten.index("text 1") < rewritten.index("the history was rewritten") < rewritten.index("text 2")
    assert "goes on from turn 1 of the model" in page.episode({"messages": talk, "forks": [[2, 0]], **rest})


def test_a_turn_shows_its_pictures_and_nothing_from_elsewhere():
    shown = pictures.data_url(np.full((4, 4, 3), 7, np.uint8))
    rest = dict.fromkeys(("outcome", "env", "family", "model", "run", "answer"), "x")
    talk = [
        {"role": "user", "content": "<image>Where?", "pictures": [shown, "https://x.example/a.png", f'{shown}"><b>']},
        {"role": "assistant", "content": "<act>click 1 2</act>"},
        {"role": "tool", "content": "<image>", "pictures": [shown]},
    ]
    html = page.episode({"messages": talk, **rest})
    assert html.count("<img") == html.count(f'src="{shown}"') == 2 and "x.example" not in html and "<b>" not in html
    assert html.index(shown) < html.index("click 1 2") < html.rindex(shown)
    assert "&lt;image&gt;" not in html  # the pictures themselves stand there
    later = {"role": "user", "content": "<image>Left of <image>, what?", "pictures": [shown, shown]}
    for one in (
        later,
        {"role": "user", "content": "<image>Where?"},
    ):  # what says where a picture is, or that it is lost, stays
        assert "&lt;image&gt;" in page.episode({"messages": [one], **rest})


def test_a_turn_shows_what_its_answer_makes():
    picture = pictures.data_url(np.full((4, 4, 3), 9, np.uint8))
    rest = dict.fromkeys(("outcome", "env", "family", "model", "run", "answer"), "x")
    talk = [{"role": "user", "content": "Paint."}, {"role": "assistant", "content": "a ring", "pictures": [picture]}]
    assert page.episode({"messages": talk, **rest}).count(f'src="{picture}"') == 1


def test_turns_of_several_policies_name_role_and_policy():
    talk = [{"role": role, "content": f"text {i}"} for i, role in enumerate(("user", "assistant", "user", "assistant"))]
    rest = dict.fromkeys(("outcome", "env", "family", "model", "run", "answer"), "x")
    html = page.episode({"messages": talk, "speakers": ["pioneer: one", ": <i>"], **rest})
    assert 'who">pioneer: one</span>text 1' in html and 'who">&lt;i&gt;</span>text 3' in html
    assert 'who">assistant</span>text 1' in page.episode({"messages": talk, **rest})


def test_a_tool_role_with_markup_is_not_a_class():
    html = page.episode(
        {
            "messages": [{"role": '"><b>', "content": EVIL}],
            "outcome": "wrong",
            "calls": 1,
            "env": "search",
            "family": "f",
            "model": "rl",
            "run": "rl",
            "answer": EVIL,
        }
    )
    assert "<script" not in html and '"><b>"' not in html and 'class="turn tool"' in html


def test_differences_of_own_rows_say_what_training_changed_in_words():
    interval = {"mean": -2.0, "low": -3.0, "high": -1.0, "p": 0.0001, "n": 34}
    measures = {
        "rows": {
            "models": {m: {"nll": interval, "pair_accuracy": interval} for m in ("base", "sft", "prefer")},
            "difference": {"base - sft, nll": interval, "prefer - sft, pair_accuracy": interval},
        }
    }
    html = own_rows(measures)
    assert "SFT − base, surprise at held-out answers, nats per token" in html and "+1.000 to +3.000" in html
    assert "preference − SFT, held-out pairs whose chosen answer is likelier" in html and "_" not in html
