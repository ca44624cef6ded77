"""The stage `report`: one self-contained page and one summary of the whole run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from synth.types import digest
from tasks.pages import page, plots
from tasks.stage import Stage

DATA = ("kb", "questions", "problems", "trajectories", "preferences", "clean")
TRAINED = {"sft": "Supervised fine-tuning", "reward": "Reward model", "prefer": "Preference optimisation", "rl": "Reinforcement learning"}
NAMES = {"base": "base", "sft": "SFT", "prefer": "preference", "rl": "RL"}
CURVES = {  # column of a curve.csv -> label of its axis; other columns are shown folded, these first and in this order
    "reward": "mean score",
    "loss": "loss",
    "nll": "loss, nats per token",
    "valid_nll": "loss on held-out, nats per token",
    "accuracy": "pairs ranked right",
    "valid_accuracy": "held-out pairs ranked right",
    "margin": "margin, nats",
    "entropy": "entropy, nats per token",
    "length": "tokens per rollout",
    "calls": "searches per rollout",
    "mismatch_kl": "KL sampler to learner, nats",
    "mismatch_max": "largest gap of a token, nats",
    "groups_dropped": "groups filtered out",
    "kl_old": "KL to the sampling policy",
    "kl_reference": "KL to the reference",
    "clip_fraction": "share of tokens clipped",
    "grad_norm": "gradient norm",
}


SERIES = {"sft": "sft", "reward": "other", "prefer": "prefer", "rl": "rl"}  # stage -> colour


def report(stage: Stage, *, episodes: int = 20) -> None:
    """`episodes`: conversations shown on the page."""
    found = json.loads(stage.input("evaluate", "metrics.json").read_text(encoding="utf-8"))
    cards = {name: json.loads(stage.input(name, "card.json").read_text(encoding="utf-8")) for name in (*DATA, *TRAINED)}
    curves = {name: curve(stage, name) for name in TRAINED}
    played = [json.loads(line) for line in stage.input("evaluate", "episodes.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = {k: v for k, v in stage.measured().items() if k != stage.name}

    summary = {
        "models": found["models"],
        "seconds": round(sum(m["seconds"] for m in measured.values()), 1) if measured else None,
        "peak_rss_mb": max(m["peak_rss_mb"] for m in measured.values()) if measured else None,
        "seeds": [stage.seed],
    }
    (stage.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    drawn = chosen(played, episodes, stage.seed)
    recipe = cards["rl"].get("recipe") or "the defaults"
    sections = [
        ("Results", results(found)),
        ("Reinforcement learning", panels(curves["rl"], "rl")),
        ("Learning curves", "".join(f"<h3>{escape(TRAINED[s])}</h3>{panels(curves[s], s)}" for s in ("sft", "reward", "prefer"))),
        ("Episodes", "".join(page.episode(e, shown=not i) for i, e in enumerate(drawn)) or "<p>No episode was recorded.</p>"),
        ("Data: what was made, what was dropped and why", dropped(cards)),
        ("Time and memory", spent(measured)),
        ("What to look at next", advice(found, cards)),
    ]
    n = next(iter(found["models"].values()))["pass@1"]["n"]
    facts = f"Recipe: {recipe}. Profile: {stage.profile}. Seed: {stage.seed}. {n} questions about roots never seen in training. "
    facts += "Intervals: 95 %, bootstrap over questions."
    (stage.out / "index.html").write_text(page.page("Espalier: what this run learned", headline(found), facts, sections), encoding="utf-8")
    stage.artifact(stage.out / "index.html")
    stage.artifact(stage.out / "summary.json")


def curve(stage: Stage, name: str) -> pd.DataFrame:
    """curve.csv of a stage, and beside each step its times where they were measured in this checkout."""
    steps, times = pd.read_csv(stage.input(name, "curve.csv")), stage.timings(name)
    return steps.merge(pd.read_csv(times), on="step", how="left") if times.exists() and "step" in steps else steps


def percent(m: Mapping[str, float]) -> str:
    return f"{m['mean']:.1%} <small>{100 * m['low']:.1f} to {100 * m['high']:.1f}</small>"


def points(m: Mapping[str, float]) -> str:
    return f"{100 * m['mean']:+.1f} points, interval {100 * m['low']:+.1f} to {100 * m['high']:+.1f}"


def headline(found: Mapping[str, Any]) -> str:
    """The result in one or two sentences, as it is."""
    last = list(found["models"])[-1]
    text = f"{NAMES.get(last, last)} answers {found['models'][last]['pass@1']['mean']:.0%} of held-out questions."
    against = found["difference"].get(f"{last} - sft")
    if against:
        moved = "more than" if against["low"] > 0 else "less than" if against["high"] < 0 else "no measurable difference from"
        text += f" That is {points(against)}: {moved} the SFT model it started from."
    blanked = found.get("blanked", {}).get(last)
    if blanked:
        text += f" With search results blanked it answers {blanked['pass@1']['mean']:.0%}."
    return text


def results(found: Mapping[str, Any]) -> str:
    """The table of models, the differences, the number of hops, the families, and how episodes ended."""
    ks = [k for k in next(iter(found["models"].values())) if k.startswith("pass@")]
    rows = [
        [
            page.dot(name) + escape(NAMES.get(name, name)),
            *(percent(m[k]) for k in ks),
            f"{m['calls']['mean']:.2f}",
            f"{m['tokens']['mean']:.1f}",
        ]
        for name, m in found["models"].items()
    ]
    rows += [
        [page.dot(name) + escape(f"{NAMES.get(name, name)}, search blanked"), *(percent(m[k]) if k in m else "" for k in ks), "", ""]
        for name, m in found["blanked"].items()
    ]
    out = page.table(["model", *ks, "searches", "tokens written"], rows, range(1, len(ks) + 3))
    differences = "".join(f"<li><b>{escape(name)}</b>: {points(m)}</li>" for name, m in found["difference"].items())
    out += "<p class='soft'>pass@k: the chance that at least one of k samples is right, estimated without bias.</p>"
    out += f"<h3>Differences on the same questions</h3><ul>{differences}</ul>"
    hops = [
        (f"{h} hop{'s' if h != '1' else ''}, {NAMES.get(name, name)}", name, m["pass@1"])
        for h in sorted({h for parts in found["hops"].values() for h in parts})
        for name, parts in found["hops"].items()
        if h in parts
        for m in [parts[h]]
    ]
    out += f'<h3>By number of hops</h3><div class="wide">{plots.whiskers(hops, x="pass@1, with 95 % interval")}</div>'
    families = sorted({f for parts in found["families"].values() for f in parts})
    if families:
        out += "<h3>Verifiable families</h3>" + page.table(
            ["model", *(f.replace("_", " ") for f in families)],
            [
                [page.dot(name) + escape(NAMES.get(name, name)), *(percent(parts[f]["pass@1"]) if f in parts else "" for f in families)]
                for name, parts in found["families"].items()
            ],
            range(1, len(families) + 1),
        )
    legend = " ".join(f'<span class="soft">{page.dot(c)}{escape(o.replace("_", " "))}</span>' for o, c in page.OUTCOME_COLOURS.items())
    ended = page.table(
        ["model", "how its episodes ended"],
        [[escape(NAMES.get(name, name)), page.stack(counts)] for name, counts in found["outcomes"].items()],
    )
    return out + f"<h3>Outcomes</h3>{ended}<p>{legend}</p>"


def panels(curve: pd.DataFrame, stage: str) -> str:
    """One plot per column of a curve: the known ones in order, the rest folded below."""
    x = "step" if "step" in curve else curve.columns[0]
    shown = [c for c in CURVES if c in curve]
    rest = [c for c in curve.columns if c not in CURVES and c != x and pd.api.types.is_numeric_dtype(curve[c])]

    def draw(columns: Sequence[str]) -> str:
        return "".join(
            page.figure(c.replace("_", " "), plots.lines({SERIES[stage]: (curve[x], curve[c])}, x=x, y=CURVES.get(c, c.replace("_", " "))))
            for c in columns
        )

    more = f'<details><summary>{len(rest)} more curves</summary><div class="chat plots">{draw(rest)}</div></details>' if rest else ""
    return f'<div class="plots">{draw(shown)}</div>{more}' if len(curve) else "<p>No step was recorded.</p>"


def chosen(played: Sequence[Mapping[str, Any]], n: int, seed: int) -> list[Mapping[str, Any]]:
    """n episodes drawn by hash, not by how they ended: half of the last model, a quarter of SFT on the same questions, the rest on families and
    with the search blanked."""
    drawn = sorted(played, key=lambda e: digest("report", seed, e["problem"]))
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for e in drawn:
        runs.setdefault(e["run"], []).append(e)
    last = next((e["model"] for e in played if e["blanked"]), played[-1]["model"] if played else "")
    wanted = {last: n // 2, "sft": n // 4, f"{last}, families": n // 8, f"{last}, search blanked": n // 8}
    first = [e for run, k in wanted.items() for e in runs.get(run, [])[:k]]
    fill = [e for run in dict.fromkeys((last, *runs)) for e in runs.get(run, []) if not any(e is f for f in first)]
    return (first + fill)[:n]


def dropped(cards: Mapping[str, Mapping[str, Any]]) -> str:
    """Per stage: rows made, kept and set aside by reason, and the gates they passed."""
    rows = []
    for name, card in cards.items():
        aside = card.get("quarantined", card.get("dropped"))
        if not isinstance(aside, Mapping):
            continue
        gates = "".join(f"<div class='note'>{escape(str(k))}: {escape(str(v))}</div>" for k, v in card.get("gates", {}).items())
        truth = "".join(f"<div class='note'>{escape(str(k))}: {escape(str(v))}</div>" for k, v in card.get("against_truth", {}).items())
        rows.append([escape(name), f"{card.get('produced', 0):,}", f"{card.get('accepted', 0):,}", page.tags(aside) + gates + truth])
    kept = "<code>artifacts/&lt;stage&gt;/quarantine.parquet</code>"
    text = f"<p>Every row is accepted or set aside with a reason code and evidence, in {kept}.</p>"
    return text + page.table(["stage", "produced", "accepted", "set aside, by reason; the gates"], rows, (1, 2))


def spent(measured: Mapping[str, Mapping[str, float]]) -> str:
    if not measured:
        return "<p>The outputs came from the cache: no stage ran in this checkout.</p>"
    longest = max(m["seconds"] for m in measured.values()) or 1.0
    order = [k for k in (*DATA, *TRAINED, "evaluate") if k in measured]
    rows = [
        [escape(k), f"{m['seconds']:.1f} s", page.bar(m["seconds"] / longest), f"{m['peak_rss_mb']:,.0f} MB"]
        for k, m in ((k, measured[k]) for k in (*order, *(k for k in measured if k not in order)))
    ]
    total = sum(m["seconds"] for m in measured.values())
    note = f"<p>{total:.0f} seconds in all; a stage that came from the cache shows its last run.</p>"
    return page.table(["stage", "seconds", "", "peak memory"], rows, (1, 3)) + note


def advice(found: Mapping[str, Any], cards: Mapping[str, Mapping[str, Any]]) -> str:
    """What the numbers of this run point to, then the commands to go on with."""
    last = list(found["models"])[-1]
    said = []
    hops = {h: m["pass@1"]["mean"] for h, m in found["hops"].get(last, {}).items()}
    if hops:
        weakest = min(hops, key=lambda h: hops[h])
        said.append(
            f"Questions of {escape(weakest)} hops are the weakest of {escape(NAMES.get(last, last))}: {hops[weakest]:.0%}. "
            "Open their episodes above."
        )
    failed = {o: n for o, n in found["outcomes"].get(last, {}).items() if o != "right" and n}
    if failed:
        worst = max(failed, key=lambda o: failed[o])
        share = failed[worst] / sum(found["outcomes"][last].values())
        said.append(f"Most of its failures are <b>{escape(worst.replace('_', ' '))}</b>: {share:.0%} of all episodes.")
    losses = {
        k: sum(c["quarantined"].values()) / c["produced"]
        for k, c in cards.items()
        if isinstance(c.get("quarantined"), Mapping) and c.get("produced")
    }
    if losses and max(losses.values()) > 0:
        stage = max(losses, key=lambda k: losses[k])
        said.append(
            f"The stage {escape(stage)} set aside {losses[stage]:.0%} of its rows: "
            f"read <code>artifacts/{escape(stage)}/quarantine.parquet</code>."
        )
    said += [
        f"Talk to the model: <code>espalier chat artifacts/{escape(last if last != 'base' else 'sft')}/model</code>.",
        "Try another method: <code>espalier recipes</code>, then <code>espalier run --recipe qae</code> and <code>dvc exp show</code>.",
        "All runs, curves and datasets: <code>make ui</code>.",
    ]
    return "<ul>" + "".join(f"<li>{s}</li>" for s in said) + "</ul>"
