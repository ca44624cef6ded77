"""The stage `report`: one self-contained page and one summary of the whole run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from synth.knowledge.kb import Fact
from synth.types import Demonstration, Problem, digest
from tasks.pages import cards as written
from tasks.pages import page, plots, samples
from tasks.pages.flowchart import flowchart
from tasks.core.labels import CURVES, METRICS, NAMES, SERIES, TRAINED, name_of
from tasks.pages.render import Macros
from tasks.runtime.stage import OUT, Stage, graph
from tasks.storage import tables

HTML = Macros("report.html")
DATA = ("kb", "questions", "problems", "demonstrations", "preferences", "clean")


SHARES = ("pass@", "acc", "exact_match")  # prefixes of test-set metrics that are shares of items
DEFAULTS = "the defaults"  # where no recipe is named
DIGESTS = (
    "problems",
    "pairs",
    "demonstrations",
    "trained_on",
    "kb",
)  # keys under which a card counts the rows that its stage made or read


def report(stage: Stage, *, episodes: int = 20, price_per_hour: float = 0.0) -> None:
    """Writes the page of a run.

    Args:
        episodes: conversations shown on the page
        price_per_hour: price of the machine, in any currency; 0 shows only time
    """
    measures = json.loads(stage.input("evaluate", "metrics.json").read_text(encoding="utf-8"))
    measures["difference"] = dict(later_minus_earlier(n, m) for n, m in measures["difference"].items())
    there = [name for name in (*DATA, *TRAINED) if stage.reads(name)]
    cards = {name: json.loads(stage.input(name, "card.json").read_text(encoding="utf-8")) for name in there}
    curves = {name: curve(stage, name) for name in TRAINED if name in there}
    played = [
        json.loads(line) for line in stage.input("evaluate", "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    measured = {k: v for k, v in stage.measured().items() if k != stage.name}
    measuring = json.loads(stage.input("evaluate", "card.json").read_text(encoding="utf-8"))
    recipe = named_recipe([*cards.values(), measuring])

    summary = {
        "models": measures["models"],
        **{
            part: measures[part]
            for part in ("difference", "families", "sets", "hops", "blanked", "decoders", "merges", "rows")
            if measures.get(part)
        },
        "seconds": round(sum(m["seconds"] for m in measured.values()), 1) if measured else None,
        "peak_rss_mb": max(m["peak_rss_mb"] for m in measured.values()) if measured else None,
        "seeds": [stage.seed],
    }
    (stage.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    drawn = chosen(played, episodes, stage.seed)
    if len(there) < len((*DATA, *TRAINED)):
        return of_one_method(stage, measures, cards, curves, drawn, spent(measured, price_per_hour), recipe)
    write_cards(stage, measures, cards, measuring, played, measured, recipe)
    sections = [
        ("Results", results(measures)),
        *([("Your rows", own_rows(measures))] if measures.get("rows") else []),
        ("Metrics", metrics(measures)),
        ("Reinforcement learning", panels(curves["rl"], "rl")),
        *generated(stage, cards),
        ("Learning curves", HTML.curves([(TRAINED[s], panels(curves[s], s)) for s in ("sft", "reward", "prefer")])),
        ("Episodes", HTML.episodes([page.episode(e, shown=not i) for i, e in enumerate(drawn)])),
        ("Data: what was made, what was dropped and why", dropped(cards)),
        ("Lineage", lineage(stage, cards)),
        ("Time, memory, cost", spent(measured, price_per_hour)),
        ("What to look at next", advice(measures, cards)),
    ]
    n = next(iter(measures["models"].values()))["pass@1"]["n"]
    facts = f"Recipe: {recipe or DEFAULTS}. Profile: {stage.profile}. Seed: {stage.seed}. {n} questions about roots never seen in training. "
    facts += "Intervals: 95 %, bootstrap over questions."
    (stage.out / "index.html").write_text(
        page.page("Espalier: what this run learned", headline(measures), facts, sections), encoding="utf-8"
    )
    stage.artifact(stage.out / "index.html")
    stage.artifact(stage.out / "summary.json")


def of_one_method(
    stage: Stage,
    measures: Mapping[str, Any],
    cards: Mapping[str, Any],
    curves: Mapping[str, pd.DataFrame],
    drawn: Sequence[Mapping[str, Any]],
    time: Markup,
    recipe: str,
) -> None:
    """The page of a project that has only some of the stages, as made by `espalier train`."""
    names = list(measures["models"])
    sections = [
        *([("Your rows", own_rows(measures))] if measures.get("rows") else []),
        *([("Results", results(measures)), ("Metrics", metrics(measures))] if measures["outcomes"] else []),
        ("Learning curves", HTML.curves([(TRAINED[s], panels(c, s)) for s, c in curves.items()])),
        *generated(stage, cards),
        *([("Episodes", HTML.episodes([page.episode(e, shown=not i) for i, e in enumerate(drawn)]))] if drawn else []),
        ("Data: what was made, what was dropped and why", dropped(cards)),
        ("Time, memory, cost", time),
    ]
    facts = f"Recipe: {recipe or DEFAULTS}. Profile: {stage.profile}. Seed: {stage.seed}. Intervals: 95 %, bootstrap over rows."
    title = f"Espalier: {', '.join(name_of(n) for n in names)} on rows of your own"
    lead = headline(measures) if measures["outcomes"] else own_headline(measures)
    (stage.out / "index.html").write_text(page.page(title, lead, facts, sections), encoding="utf-8")
    stage.artifact(stage.out / "index.html")
    stage.artifact(stage.out / "summary.json")


def generated(stage: Stage, cards: Mapping[str, Any]) -> list[tuple[str, Markup]]:
    """What a policy of `rl.control` made, a section for each step that `rl` kept; none where it writes text."""
    if not cards.get("rl", {}).get("samples"):
        return []
    lines = stage.input("rl", "samples.jsonl").read_text(encoding="utf-8").splitlines()
    return samples.sections([json.loads(line) for line in lines])


def named_recipe(cards: Sequence[Mapping[str, Any]]) -> str:
    """The recipe of the last of the stages that a recipe changed anything of; empty: of none."""
    return next((c["recipe"] for c in reversed(cards) if c.get("recipe")), "")


OWN_METRICS = {  # metric of held-out rows -> its description, whether more is better
    "pair_accuracy": ("held-out pairs whose chosen answer is likelier", True),
    "pair_margin": ("log-probability of chosen over rejected, nats", True),
    "nll": ("surprise at held-out answers, nats per token", False),
}


def own_headline(measures: Mapping[str, Any]) -> str:
    """What training did to the held-out rows, stated plainly."""
    models, last = measures["rows"]["models"], list(measures["models"])[-1]
    metric = next((m for m in OWN_METRICS if m in models.get(last, {})), "")
    if not metric:
        return "No row was short enough to be measured."
    words, better = OWN_METRICS[metric]
    show = "{:.0%}" if metric == "pair_accuracy" else "{:.3f}"
    text = f"{name_of(last)}: {words}: {show.format(models[last][metric]['mean'])}."
    for name, m in measures["rows"]["difference"].items():
        if name.startswith(f"{last} - ") and name.endswith(f", {metric}"):
            sure = m["low"] > 0 or m["high"] < 0
            gained = "better" if (m["mean"] > 0) == better else "worse"
            old = name[len(last) + 3 :].partition(", ")[0]
            change = f"{m['mean']:+.3f}, interval {m['low']:+.3f} to {m['high']:+.3f}"
            text += f" Beside {name_of(old)}: {change}: {gained if sure else 'no measurable difference'}."
    return text


def own_rows(measures: Mapping[str, Any]) -> Markup:
    """Held-out rows of the user's own: each metric of each model, and the differences."""
    models = measures["rows"]["models"]
    shown = [m for m in OWN_METRICS if any(m in values for values in models.values())]
    rows = [
        [model(name), *((HTML.percent if m == "pair_accuracy" else HTML.number)(v[m]) if m in v else "" for m in shown)]
        for name, v in models.items()
    ]
    n = [str(max((v[m]["n"] for v in models.values() if m in v), default=0)) for m in shown]
    rows.append(["rows", *n])
    changes = [
        [own_words(name), f"{m['mean']:+.3f}", f"{m['low']:+.3f} to {m['high']:+.3f}", f"{m['p']:.2g}"]
        for name, m in (later_minus_earlier(*x) for x in measures["rows"]["difference"].items())
    ]
    table = page.table(["model", *(OWN_METRICS[m][0] for m in shown)], rows, range(1, len(shown) + 1))
    return table + (page.table(["difference", "mean", "interval", "p"], changes, (1, 2, 3)) if changes else "")


def own_words(difference: str) -> str:
    """The label of a difference on own rows: "SFT − base, held-out pairs whose chosen answer is likelier"."""
    models, _, metric = difference.partition(", ")
    return f"{spoken(models)}, {OWN_METRICS[metric][0]}" if metric in OWN_METRICS else spoken(difference)


def curve(stage: Stage, name: str) -> pd.DataFrame:
    """curve.csv of a stage, with the times of each step if they were measured in this checkout."""
    steps, times = pd.read_csv(stage.input(name, "curve.csv")), stage.timings(name)
    return steps.merge(pd.read_csv(times), on="step", how="left") if times.exists() and "step" in steps else steps


def later_minus_earlier(name: str, m: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A difference with its sign as it is read: what training changed, so `sft - base` even if differences were
    computed against SFT."""
    of = re.fullmatch(r"(\w+) - (\w+)(, .*)?", name)
    order = list(NAMES)
    if of is None or not {of[1], of[2]} <= set(order) or order.index(of[1]) > order.index(of[2]):
        return name, m
    turned = {"mean": -m["mean"], "low": -m["high"], "high": -m["low"]}
    return f"{of[2]} - {of[1]}{of[3] or ''}", {**m, **turned}


def spoken(name: str) -> str:
    """The label of a difference with the page's names of the models: SFT − base."""
    return re.sub(
        r"\b(\w+)(, search blanked)? - (\w+)",
        lambda m: f"{name_of(m[1])}{m[2] or ''} − {name_of(m[3])}",
        name,
    )


def points(m: Mapping[str, float]) -> str:
    return f"{100 * m['mean']:+.1f} points, interval {100 * m['low']:+.1f} to {100 * m['high']:+.1f}"


def headline(measures: Mapping[str, Any]) -> str:
    """The result in one or two plain sentences."""
    last = list(measures["models"])[-1]
    text = f"{name_of(last)} answers {measures['models'][last]['pass@1']['mean']:.0%} of held-out questions."
    against = measures["difference"].get(f"{last} - sft")
    if against:
        moved = (
            "more than"
            if against["low"] > 0
            else "less than"
            if against["high"] < 0
            else "no measurable difference from"
        )
        text += f" That is {points(against)}: {moved} the SFT model it started from."
    for name, m in measures["difference"].items():
        better, _, worse = name.partition(" - ")
        if m["high"] < 0 and (better, worse) != (last, "sft") and {better, worse} <= NAMES.keys():
            p = f", p = {m['p_holm']:.2g}" if "p_holm" in m else ""
            text += f" {NAMES[better]} is {-100 * m['mean']:.1f} points below {NAMES[worse]}{p}."
    blanked = measures.get("blanked", {}).get(last)
    if blanked:
        text += f" With search results blanked it answers {blanked['pass@1']['mean']:.0%}."
    return text


def results(measures: Mapping[str, Any]) -> Markup:
    """The table of models, the differences, the number of hops, the families, and how episodes ended."""
    ks = [k for k in next(iter(measures["models"].values())) if k.startswith("pass@")]
    rows = [
        [
            model(name),
            *(HTML.percent(m[k]) for k in ks),
            f"{m['calls']['mean']:.2f}",
            f"{m['tokens']['mean']:.1f}",
        ]
        for name, m in measures["models"].items()
    ]
    rows += [
        [model(name, ", search blanked"), *(HTML.percent(m[k]) if k in m else "" for k in ks), "", ""]
        for name, m in measures["blanked"].items()
    ]
    judged = measures.get("judged") and page.table(
        ["answers of", "preferred", "ties", "the same in both orders", "without a verdict"],
        [
            [
                pair,
                *(HTML.percent(r[m]) if r[m]["n"] else "-" for m in ("win_rate", "ties", "consistent", "unscorable")),
            ]
            for pair, r in measures["judged"].items()
        ],
        range(1, 5),
    )
    decoders = measures.get("decoders") and page.table(
        ["decoder", *ks, "forward tokens"],
        [
            [name, *(HTML.percent(m[k]) if k in m else "" for k in ks), f"{m['forward_tokens']['mean']:.0f}"]
            for name, m in measures["decoders"].items()
        ],
        range(1, len(ks) + 2),
    )
    merges = measures.get("merges") and page.table(
        ["merge", *ks, "over", "difference", "solved by it alone", "by the model alone"],
        [
            [
                name,
                *(HTML.percent(m[k]) if k in m else "" for k in ks),
                name_of(over.removeprefix("over ")),
                points(against["difference"]),
                str(against["gained"]),
                str(against["lost"]),
            ]
            for name, m in measures["merges"].items()
            for over, against in m.items()
            if over.startswith("over ")
        ],
        range(1, len(ks) + 5),
    )
    hops = [
        (f"{h} hop{'s' if h != '1' else ''}, {name_of(name)}", name, m["pass@1"])
        for h in sorted({h for parts in measures["hops"].values() for h in parts})
        for name, parts in measures["hops"].items()
        if h in parts
        for m in [parts[h]]
    ]
    families = sorted({f for parts in measures["families"].values() for f in parts})
    by_family = families and page.table(
        ["model", *(f.replace("_", " ") for f in families)],
        [
            [model(name), *(HTML.percent(parts[f]["pass@1"]) if f in parts else "" for f in families)]
            for name, parts in measures["families"].items()
        ],
        range(1, len(families) + 1),
    )
    return HTML.results(
        models=page.table(["model", *ks, "searches", "tokens written"], rows, range(1, len(ks) + 3)),
        differences=[(spoken(name), points(m), m.get("p_holm")) for name, m in measures["difference"].items()],
        decoders=decoders,
        merges=merges,
        judged=judged,
        hops=plots.whiskers(hops, x="pass@1, with 95 % interval"),
        families=by_family,
        outcomes=page.table(
            ["model", "how its episodes ended"],
            [[name_of(name), page.stack(counts)] for name, counts in measures["outcomes"].items()],
        ),
        colours=page.OUTCOME_COLOURS,
    )


def model(name: str, more: str = "") -> Markup:
    """A model's name with its colour."""
    return page.dotted(name, name_of(name) + more)


def metrics(measures: Mapping[str, Any]) -> Markup:
    """Every other metric of every model, the reliability diagram, and the test sets of the user's."""
    models = measures["models"]
    rows = []
    for k in (k for k in METRICS if any(k in m for m in models.values())):
        name, share = METRICS[k]
        show = HTML.percent if share else HTML.number
        cells = [m.get(k, {}) for m in models.values()]
        rows.append([name, *("" if c.get("mean") is None else show(c) for c in cells)])
    sets = []
    for name, by_model in measures.get("sets", {}).items():
        first = next(iter(by_model.values()))
        ks = [k for k in first if k.startswith("pass@")] or list(first)
        share = {k: k.startswith(SHARES) for k in ks}
        of_set = [
            [model(m), *((HTML.percent if share[k] else HTML.number)(v[k]) for k in ks), str(v[ks[0]]["n"])]
            for m, v in by_model.items()
        ]
        sets.append((name, page.table(["model", *ks, "problems"], of_set, range(1, len(ks) + 2))))
    for name, values in measures.get("judging", {}).items():
        of_set = [[metric, HTML.percent(v), str(v["n"])] for metric, v in values.items()]
        sets.append(
            (f"{name} (how the reward model or judge does)", page.table(["part", "right", "rows"], of_set, (1, 2)))
        )
    return HTML.metrics(
        table=page.table(["metric", *(name_of(m) for m in models)], rows, range(1, len(models) + 1)) if rows else None,
        diagrams=[
            (f"{name_of(name)}: sure and right", plots.reliability({name: points}))
            for name, points in measures.get("reliability", {}).items()
        ],
        sets=sets,
    )


def lineage(stage: Stage, cards: Mapping[str, Mapping[str, Any]]) -> Markup:
    """The graph with the output of every stage, and the path of one row from its source to the model."""
    edges, nodes = {}, {"your files": ("data", "base")}
    stages = {n: s for n, s in graph(stage.root).items() if n in (*DATA, *TRAINED)} or dict.fromkeys(
        (*DATA, *TRAINED), {}
    )
    for name, entry in stages.items():
        reads = [
            r
            for r in stages
            if any(d == (p := OUT.get(r, f"artifacts/{r}")) or d.startswith(p + "/") for d in entry.get("deps", []))
        ]
        edges[name] = reads + (["your files"] if name == "kb" else [])
        card = cards[name]
        amount = f"{card['accepted']:,} rows" if "accepted" in card else f"{card.get('steps', 0):,} steps"
        nodes[name] = (amount, SERIES.get(name, "other"))
    return HTML.lineage(flowchart(nodes, edges), one_row(stage))


def one_row(stage: Stage) -> list[tuple[str, str]]:
    """(what, text) from the source line of a fact to the demonstration that was trained on; the demonstration is drawn
    by hash, from those that need two facts if there are any."""
    problems = tables.ById([stage.input("questions", "problems.parquet")], Problem)
    shown = (
        t
        for t in tables.each(stage.input("demonstrations", "demonstrations.parquet"), Demonstration)
        if t.problem in problems and t.split == "train"
    )
    t = min(
        shown,
        key=lambda t: (-min(2, len(problems[t.problem].lineage.get("facts", ()))), digest("way", stage.seed, t.id)),
        default=None,
    )
    if t is None:
        return []
    facts = {f.id: f for f in tables.read(stage.input("kb", "facts.parquet"), Fact)}
    p = problems[t.problem]
    way = [("source", f"{facts[i].source}: {facts[i].span}") for i in p.lineage.get("facts", ()) if i in facts]
    way += [("question", f"{p.question} ({p.id})"), ("its answer, proved by query", p.answer)]
    way += [("demonstration", f"{t.id}: " + "\n".join(m.content for m in t.messages if m.role == "assistant"))]
    return [*way, ("trained on by", "sft, and what starts from it: rl, prefer, reward")]


def write_cards(
    stage: Stage,
    measures: Mapping[str, Any],
    cards: Mapping[str, Any],
    decoding: Mapping[str, Any],
    played: Sequence[Mapping[str, Any]],
    measured: Mapping[str, Any],
    recipe: str,
) -> None:
    """model_card.md of the last model and data_card.md, beside the page."""
    last = list(measures["models"])[-1]
    trained = last if last in TRAINED else "sft"
    folder = "base" if last == "base" else "model"
    question = next(
        (m["content"] for e in played for m in e["messages"] if m["role"] == "user"), "What is the capital of Norvia?"
    )
    seconds = sum(m["seconds"] for m in measured.values())
    peak = max((m["peak_rss_mb"] for m in measured.values()), default=0.0)
    first = measures["models"][last]
    facts = {
        "stage": trained,
        "card": cards[trained],
        "metrics": first,
        "recipe": recipe,
        "profile": stage.profile,
        "seed": stage.seed,
        "n": first["pass@1"]["n"],
        "question": question,
        "decoding": ", ".join(
            f"{k} {decoding[k]}" for k in ("temperature", "top_p", "max_turn_tokens", "samples") if k in decoding
        ),
        "blanked": (measures["blanked"].get(last, {}).get("pass@1") or {}).get("mean"),
        "made": [
            [
                n,
                *(f"{c[k]:,}" if c.get(k) else "" for k in ("produced", "accepted")),
                next((c[k] for k in DIGESTS if isinstance(c.get(k), str)), "")[:12],
            ]
            for n, c in cards.items()
        ],
        "cost": f"{seconds:.0f} seconds of this machine for the whole run, {peak:,.0f} MB of memory at most."
        if measured
        else "",
    }
    (stage.out / "model_card.md").write_text(
        written.model_card(f"espalier-{last}", f"artifacts/{trained}/{folder}", facts), encoding="utf-8"
    )
    files = {
        "questions": "artifacts/questions/problems.parquet",
        "demonstrations": "artifacts/demonstrations/demonstrations.parquet",
        "pairs": "artifacts/clean/pairs.parquet",
        "facts": "artifacts/kb/facts.parquet",
    }
    about = {
        "cards": {n: cards[n] for n in DATA},
        "sources": cards["kb"].get("sources", []),
        "seed": stage.seed,
        "recipe": recipe,
    }
    (stage.out / "data_card.md").write_text(written.data_card("espalier data", files, about), encoding="utf-8")


def panels(curve: pd.DataFrame, stage: str) -> Markup:
    """One plot per column of a curve: the known columns in order, the others folded below."""
    if not len(curve):
        return HTML.no_curve()
    x = "step" if "step" in curve else curve.columns[0]
    columns = [c for c in curve.columns if c in CURVES or (c != x and pd.api.types.is_numeric_dtype(curve[c]))]
    return page.panels(
        columns, lambda c, label: plots.lines({SERIES[stage]: (list(curve[x]), list(curve[c]))}, x=x, y=label)
    )


def chosen(played: Sequence[Mapping[str, Any]], n: int, seed: int) -> list[Mapping[str, Any]]:
    """n episodes drawn by hash, whatever their outcome: half from the last model, a quarter from SFT on the same
    questions, the others from families and with the search blanked."""
    drawn = sorted(played, key=lambda e: digest("report", seed, e["problem"]))
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for e in drawn:
        runs.setdefault(e["run"], []).append(e)
    last = next((e["model"] for e in played if e["blanked"]), played[-1]["model"] if played else "")
    wanted = {last: n // 2, "sft": n // 4, f"{last}, families": n // 8, f"{last}, search blanked": n // 8}
    first = [e for run, k in wanted.items() for e in runs.get(run, [])[:k]]
    fill = [e for run in dict.fromkeys((last, *runs)) for e in runs.get(run, []) if not any(e is f for f in first)]
    return (first + fill)[:n]


def dropped(cards: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Per stage: rows made, kept and quarantined by reason, and the gates they passed."""
    rows = []
    for name, card in cards.items():
        quarantined = card.get("quarantined", card.get("dropped"))
        if not isinstance(quarantined, Mapping):
            continue
        notes = [*card.get("gates", {}).items(), *card.get("against_truth", {}).items()]
        rows.append(
            [name, f"{card.get('produced', 0):,}", f"{card.get('accepted', 0):,}", HTML.reasons(quarantined, notes)]
        )
    for name, card in cards.items():
        if card.get("too_long"):  # rows that a stage read and did not learn from
            n = card.get("pairs", card.get("demonstrations", 0))
            n = n if isinstance(n, int) else 0
            rows.append([name, f"{n + card['too_long']:,}", f"{n:,}", HTML.reasons({"too_long": card["too_long"]}, [])])
    head = ["stage", "produced", "accepted", "quarantined, by reason; the gates"]
    return HTML.dropped(page.table(head, rows, (1, 2)))


def spent(measured: Mapping[str, Mapping[str, float]], price: float) -> Markup:
    if not measured:
        return HTML.spent(None, 0, price)
    longest = max(m["seconds"] for m in measured.values()) or 1.0
    order = [k for k in (*DATA, *TRAINED, "evaluate") if k in measured]
    rows = [
        [k, f"{m['seconds']:.1f} s", page.bar(m["seconds"] / longest), f"{m['peak_rss_mb']:,.0f} MB"]
        for k, m in ((k, measured[k]) for k in (*order, *(k for k in measured if k not in order)))
    ]
    total = sum(m["seconds"] for m in measured.values())
    return HTML.spent(page.table(["stage", "seconds", "", "peak memory"], rows, (1, 3)), total, price)


def advice(measures: Mapping[str, Any], cards: Mapping[str, Mapping[str, Any]]) -> Markup:
    """What the numbers of this run suggest, then the commands to continue with."""
    last = list(measures["models"])[-1]
    hops = {h: m["pass@1"]["mean"] for h, m in measures["hops"].get(last, {}).items()}
    outcomes = measures["outcomes"].get(last, {})
    failed = {o: n / sum(outcomes.values()) for o, n in outcomes.items() if o != "right" and n}
    lost = {
        k: sum(c["quarantined"].values()) / c["produced"]
        for k, c in cards.items()
        if isinstance(c.get("quarantined"), Mapping) and c.get("produced")
    }
    return HTML.advice(
        last=name_of(last),
        hops=min(hops.items(), key=lambda x: x[1], default=None),
        failed=max(failed.items(), key=lambda x: x[1], default=None),
        lost=max(((k, share) for k, share in lost.items() if share > 0), key=lambda x: x[1], default=None),
        model=last if last != "base" else "sft",
    )
