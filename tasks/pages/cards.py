"""The model card and the data card, as Markdown with the front matter that the Hugging Face Hub reads, from the facts
of the run alone.

Readers copy the snippets, so a test runs `SNIPPETS` exactly as they stand on the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tasks.core.text import words

MODEL_SNIPPET = """from transformers import AutoModelForCausalLM, AutoTokenizer

path = "{path}"
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path)
chat = [{{"role": "user", "content": "{question}"}}]
ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(tokenizer.decode(model.generate(**ids, max_new_tokens=32)[0]))
"""
SERVED_SNIPPET = """from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
chat = [{"role": "user", "content": "What is 2 + 3?"}]
model = client.models.list().data[0].id
answer = client.chat.completions.create(model=model, messages=chat, max_tokens=32)
print(answer.choices[0].message.content)
"""
REWARD_SNIPPET = """import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

path = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForSequenceClassification.from_pretrained(path).eval()
chat = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "<answer>5</answer>"}]
text = tokenizer.apply_chat_template(chat, tokenize=False)
text = text[: text.rindex(tokenizer.eos_token) + len(tokenizer.eos_token)]  # up to the end of the last turn
ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
with torch.no_grad():
    print(model(**ids).logits[0].tolist())
"""
WORD_SNIPPET = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path).eval()
chat = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "<answer>5</answer>"}]
text = tokenizer.apply_chat_template(chat, tokenize=False)
text = text[: text.rindex(tokenizer.eos_token) + len(tokenizer.eos_token)]  # up to the end of the last turn
ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
word = tokenizer("VERDICT", add_special_tokens=False)["input_ids"][0]
with torch.no_grad():
    logp = torch.log_softmax(model(**ids).logits[0, -1], -1)[word]
print(float(logp - torch.log(-torch.expm1(logp))))  # the reward: log-odds of the word
"""
FOLDER_SNIPPET = """from datasets import load_dataset

rows = load_dataset("{path}", "{first}", split="train")
print(rows.num_rows, rows[0])
"""
MAIN = ("cleaned", "problems", "demonstrations", "pairs", "facts")  # the table that is meant if none is named
DATA_SNIPPET = """from datasets import load_dataset

rows = load_dataset("parquet", data_files="{path}", split="train")
print(rows.num_rows, rows[0])
"""


def model_card(name: str, path: str, facts: Mapping[str, Any]) -> str:
    """facts: metrics (of metrics.json, one model), cards, recipe, profile, seed, measured, question, n: what the report
    has."""
    metrics = {k: m for k, m in facts["metrics"].items() if isinstance(m, Mapping) and m.get("mean") is not None}
    results = [
        {
            "type": k,
            "value": round(m["mean"], 4),
            "name": f"{k} (95 % interval {m['low']:.4f} to {m['high']:.4f}, n = {m['n']})",
        }
        for k, m in metrics.items()
        if k.startswith(("pass@", "majority@"))
    ]
    task = {"type": "text-generation", "name": "questions about held-out roots"}
    index = [
        {
            "name": name,
            "results": [
                {
                    "task": task,
                    "dataset": {"type": "espalier", "name": "artifacts/questions, split test"},
                    "metrics": results,
                }
            ],
        }
    ]
    front = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["espalier", name],
        "model-index": index,
    }
    card, steps = facts["card"], facts["card"].get("steps", 0)
    lines = [
        _front(front),
        f"# {name}",
        f"Trained by Espalier's stage `{facts['stage']}`, recipe {facts['recipe'] or 'none'}, profile {facts['profile']}, "
        f"seed {facts['seed']}: "
        f"{card.get('parameters', 0):,} parameters, {steps:,} steps.",
        "## Use\n\n```python\n" + MODEL_SNIPPET.format(path=path, question=facts["question"].replace('"', "'")) + "```",
        "The model was trained to search: without the tool of the environment `search` it cannot look anything up "
        f"(`espalier chat {path}` gives it one).",
        "## How good it is\n\n"
        + _table(
            ["metric", "mean", "95 % interval", "problems"],
            [[k, f"{m['mean']:.4g}", f"{m['low']:.4g} to {m['high']:.4g}", str(m["n"])] for k, m in metrics.items()],
        ),
        f"Measured on {facts['n']} questions about things that no training question is about. Decoding: {facts['decoding']}.",
        "## What it was made of\n\n" + _table(["stage", "made", "kept", "digest"], facts["made"]),
        "`espalier lineage` names every row, decision and source file.",
        "## Limits\n\nIt knows what its knowledge base holds, and states it without doubt where it is wrong. "
        + (f"With its search blanked it answers {facts['blanked']:.0%}." if facts.get("blanked") is not None else ""),
        "## Cost\n\n" + (facts["cost"] or "Not measured in this checkout: outputs came from the cache."),
    ]
    return "\n\n".join(lines) + "\n"


def hub_card(name: str, facts: Mapping[str, Any]) -> str:
    """README.md of an exported folder. facts: license, kind (model, word or reward), stage, card, results (metric ->
    mean, low, high, n), datasets (rows of stage, made, kept, digest), base, parity (sentences), head (of a reward
    model)."""
    results = {k: m for k, m in facts["results"].items() if isinstance(m, Mapping) and m.get("mean") is not None}
    kind, card = facts["kind"], facts["card"]
    front: dict[str, Any] = {
        "license": facts["license"],
        "library_name": "transformers",
        "pipeline_tag": "text-classification" if kind == "reward" else "text-generation",
        "tags": ["espalier", *(["reward-model"] if kind != "model" else [])],
    }
    if facts["base"]:
        front["base_model"] = facts["base"]
    if results:
        metrics = [
            {"type": k, "value": round(m["mean"], 4), "name": f"{k} ({m['low']:.4f} to {m['high']:.4f}, n = {m['n']})"}
            for k, m in results.items()
        ]
        task, data = {"type": "text-generation"}, {"type": "espalier", "name": "held-out questions of the run"}
        front["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": metrics}]}]
    use = {
        "model": MODEL_SNIPPET.format(path=".", question="What is 2 + 3?"),
        "word": WORD_SNIPPET.replace("VERDICT", str(card.get("verdict", "good"))),
        "reward": REWARD_SNIPPET,
    }[kind]
    lines = [_front(front), f"# {name}"]
    if facts["stage"]:
        lines.append(
            f"Trained by Espalier's stage `{facts['stage']}`: {card.get('parameters', 0):,} parameters, {card.get('steps', 0):,} steps."
        )
    lines.append(
        "## Use\n\nFrom within this folder, or with the name of its repository as `path`:\n\n```python\n" + use + "```"
    )
    if kind == "model":
        lines.append(
            "Behind an OpenAI-compatible server (`espalier serve .` or `vllm serve .`):\n\n```python\n"
            + SERVED_SNIPPET
            + "```"
        )
    if kind == "word":
        lines.append(
            "The reward is the log-odds of one word after the conversation. This is a causal language model: "
            "`AutoModelForSequenceClassification` would put a head of random numbers on it."
        )
    if facts["head"]:
        lines.append(
            f"The head is `{facts['head'].get('head')}`, with the settings {words(facts['head'].get('settings') or {})}; its outputs stand in the order of "
            f"`score.weight`{_attributes(facts['head'])}."
        )
    if results:
        rows = [[k, f"{m['mean']:.4g}", f"{m['low']:.4g} to {m['high']:.4g}", str(m["n"])] for k, m in results.items()]
        lines.append("## Results\n\n" + _table(["metric", "mean", "95 % interval", "problems"], rows))
    if facts["datasets"]:
        lines.append("## Datasets\n\n" + _table(["stage", "made", "kept", "digest"], facts["datasets"]))
    lines.append("## Checked\n\n" + "\n".join(f"- {p}" for p in facts["parity"]))
    lines.append(f"## Licence\n\n{facts['license']}")
    return "\n\n".join(lines) + "\n"


def _attributes(head: Mapping[str, Any]) -> str:
    return f" ({', '.join(map(str, head['attributes']))})" if head.get("attributes") else ""


def data_card(name: str, files: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """files: split or table -> path; facts: the card of each stage, sources with licence notes."""
    front = {
        "tags": ["espalier", "synthetic"],
        "configs": [{"config_name": k, "data_files": v} for k, v in files.items()],
    }
    rows, gates = [], []
    for stage, card in facts["cards"].items():
        quarantined = card.get("quarantined") or {}
        dropped = (
            ", ".join(f"{k} {v:,}" for k, v in quarantined.items())
            if isinstance(quarantined, Mapping)
            else str(quarantined)
        )
        rows.append([stage, f"{card.get('produced', 0):,}", f"{card.get('accepted', 0):,}", dropped or "none"])
        gates += [[stage, k, words(v)] for k, v in card.get("gates", {}).items()]
    lines = [
        _front(front),
        f"# {name}",
        f"Made by Espalier, seed {facts['seed']}, recipe {facts['recipe'] or 'none'}. Every row is kept or "
        "quarantined with a reason and evidence.",
        "## Rows\n\n" + _table(["stage", "made", "kept", "quarantined"], rows),
        "## Gates\n\n" + (_table(["stage", "gate", "value"], gates) if gates else "None."),
        "## Sources\n\n"
        + _table(
            ["path", "kind", "rows"],
            [[s.get("path", ""), s.get("kind", ""), f"{s.get('rows', 0):,}"] for s in facts["sources"]],
        ),
        "Splits are decided by the hash of each root, so no root lies in two of them.",
        "## Use\n\n```python\n" + DATA_SNIPPET.format(path=next(iter(files.values()))) + "```",
    ]
    return "\n\n".join(lines) + "\n"


def folder_card(name: str, files: Mapping[str, int], told: str, path: str) -> str:
    """README.md of a folder of tables, by which `datasets.load_dataset(folder, table)` and the Hub's viewer read it.
    files: file -> its rows; a file without rows has no column types, so it is named but not listed as a table to load.
    told: a sentence on where the files come from; path: what the snippet opens."""
    tables = {f.partition(".")[0]: f for f, n in files.items() if n}
    first = next((t for t in MAIN if t in tables), next(iter(tables), ""))
    configs = [
        {"config_name": t, "data_files": f, **({"default": True} if t == first else {})} for t, f in tables.items()
    ]
    lines = [
        _front({"tags": ["espalier"], **({"configs": configs} if configs else {})}),
        f"# {name}",
        told,
        _table(["file", "rows"], [[f, f"{n:,}"] for f, n in files.items()]),
    ]
    if first:
        lines.append("## Use\n\n```python\n" + FOLDER_SNIPPET.format(path=path, first=first) + "```")
    return "\n\n".join(lines) + "\n"


def _front(values: Mapping[str, Any]) -> str:
    return "---\n" + yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True) + "---"


def _table(head: list[str], rows: list[list[str]]) -> str:
    cell = lambda x: " ".join(str(x).replace("|", "\\|").split())  # noqa: E731
    return "\n".join(["| " + " | ".join(map(cell, r)) + " |" for r in [head, ["---"] * len(head), *rows]])
