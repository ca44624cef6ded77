"""Does a search find all passages that a question of several steps needs? `make bench-search-hybrid`

recall@5: of the passages that a question needs, how many are among the first five, in percent, mean over questions.

Questions. No set of MuSiQue, HotpotQA or 2WikiMultihopQA with its supporting passages is among the data of this project, so
questions of their forms are made from 6,119 paragraphs of 2WikiMultihopQA (../shared/data/2wiki), by patterns ("directed by
NAME" where NAME is the title of one other paragraph):

- bridge: "Where was the director of film A born?" (2WikiMultihopQA's compositional form, two of MuSiQue's hops): A and its
  director are needed
- described: the same where A is not named but described by its first sentence, as in HotpotQA: "The director of the 1933
  American comedy film starring ... was born in what year?"
- bridge comparison: "Which film has the director who died later, A or B?": four passages
- comparison: "Which film came out first, A or B?": two

The second passage is known to be named by the first, word for word, which following names needs: in the sets themselves
some are named otherwise, so that their gains will be smaller. `--rows FILE` measures a file of such a set: a JSON list, or
a row of JSON a line, with `question` and `paragraphs` (`title`, `paragraph_text` or `text`, `is_supporting`: MuSiQue), or
with `question`, `context` and `supporting_facts` (HotpotQA, 2WikiMultihopQA). Its corpus are all its paragraphs.

Halves. Constants of synth/search/hybrid.py, and for each set the best of four ways to split words for bm25s (with and
without stop words, with the stemmer of Snowball, k1 = 0.9 and b = 0.4), were chosen on half of the questions; numbers are of
the other half. Intervals: 95 %, bootstrap over questions; differences are paired.

Cost: CPU milliseconds of a query, and `--large`: memory of building and asking a hybrid index of passages of 30 words, at
50,000, 200,000 and a million, each in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from benchmarks.rows import result_row
from benchmarks.search import DATA, ROOT, asked, made_up
from synth.knowledge.kb import Passage
from synth.search.embeddings import embedder
from synth.search.index import build_index
from tasks.knowledge.search_tool import Search

RESULT = ROOT / "benchmarks" / "results" / "search-hybrid.json"
LARGE = RESULT.with_name("search-hybrid-large.json")
COMMAND = "make bench-search-hybrid"
SEED, K, PAIRS, DRAWS, FOLLOW = 1, 5, 300, 2000, 3
SIZES = (50_000, 200_000, 1_000_000)
_NAME = r"((?:[A-Z][\w.'\-]*|de|von|van|of|the|bin|al|la|du)(?:\s+(?:[A-Z][\w.'\-]*|de|von|van|of|the|bin|al|la|du))*)"
RELATIONS = {  # relation -> how it is written, questions that name the first page, and questions that describe it
    "director": (
        (r"\bdirected (?:and \w+ )?(?:and \w+ )?by " + _NAME,),
        (
            "Where was the director of film {a} born?",
            "When did the director of film {a} die?",
            "What nationality is the director of film {a}?",
            "Where did the director of film {a} study?",
            "Who is the father of the director of film {a}?",
            "Which award did the director of film {a} win?",
        ),
        (
            "The director of the {d} was born in what year?",
            "What nationality was the man who directed the {d}?",
            "Which director, who made the {d}, died where?",
        ),
    ),
    "composer": (
        (r"\b(?:music|score|composed)[^.]{0,30}? by " + _NAME,),
        ("Where was the composer of film {a} born?", "What nationality is the composer of film {a}?"),
        ("The composer of the {d} was born where?",),
    ),
    "father": (
        (r"\b(?:son|daughter|child) of (?:\w+ ){0,4}?" + _NAME,),
        ("When did {a}'s father die?", "Who is the paternal grandfather of {a}?"),
        ("Who was the father of the {d}, and when did he die?",),
    ),
    "spouse": (
        (r"\b(?:wife|husband|consort|widow) of (?:\w+ ){0,4}?" + _NAME, r"\bmarried (?:to )?(?:\w+ ){0,3}?" + _NAME),
        ("Who is {a}'s father-in-law?", "Where was the place of death of {a}'s spouse?"),
        ("To whom was the {d} married, and when was that person born?",),
    ),
    "author": (
        (r"\b(?:written|novel) by " + _NAME,),
        ("Where was the writer of {a} born?", "What nationality is the author of {a}?"),
        ("The writer of the {d} was born in what year?",),
    ),
}
BRIDGES = (
    "Which film has the director who was born first, {a} or {b}?",
    "Do director of film {a} and director of film {b} have the same nationality?",
    "Which film has the director who died later, {a} or {b}?",
)
COMPARED = (
    "Which film came out first, {a} or {b}?",
    "Are {a} and {b} from the same country?",
    "Which film was released more recently, {a} or {b}?",
)


@dataclass(frozen=True)
class Question:
    text: str
    needs: frozenset[int]  # places of passages
    chosen_on: bool  # of the half that constants were chosen on


# ---- questions


def _bare(title: str) -> str:
    return re.sub(r"\s*\(.*\)$", "", title)


def _half(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[-1] % 2 == 0


def links(corpus: Sequence[Mapping[str, str]]) -> list[tuple[int, str, int]]:
    """(passage, relation, passage) where the first names the title of the second, and of no other, in such a relation."""
    titled: dict[str, set[int]] = {}
    for i, row in enumerate(corpus):
        for title in (row["title"], _bare(row["title"])):
            titled.setdefault(title, set()).add(i)
    out = []
    for i, row in enumerate(corpus):
        for relation, (patterns, _, _) in RELATIONS.items():
            match = next((m for p in patterns for m in [re.search(p, row["text"])] if m), None)
            names = match.group(1).rstrip(".").split() if match else []
            for n in range(len(names), 1, -1):
                to = titled.get(" ".join(names[:n]).rstrip(".,'"), set()) - {i}
                if len(to) == 1:
                    out.append((i, relation, *to))
                    break
    return out


def described(row: Mapping[str, str], other: str) -> str | None:
    """At most sixteen words of the first sentence, without the title and the name of the other page; None if too few."""
    match = re.search(r"\b(?:is|was|were) (?:a|an|the) (.*)", row["text"].split(". ")[0])
    if match is None:
        return None
    text = match.group(1).replace(other, "").replace(_bare(other), "")
    text = re.sub(r"\b(?:directed|written|produced|music|composed)\b(?: and \w+)*(?: by)?(?=\s|,|$)", "", text)
    text = re.sub(r"\bby\s*(?=and|,|$)", "", text)
    words = " ".join(text.split()).strip(" ,.").split()[:16]
    return " ".join(words) if len(words) >= 6 else None


def questions(corpus: Sequence[Mapping[str, str]], seed: int = SEED) -> dict[str, list[Question]]:
    """Set -> questions. The half of a question is that of the title of its first page."""
    rng, linked = random.Random(seed), links(corpus)
    out: dict[str, list[Question]] = {"bridge": [], "described": [], "bridge comparison": [], "comparison": []}
    for a, relation, b in linked:
        _, named, vague = RELATIONS[relation]
        half, title = _half(corpus[a]["title"]), corpus[a]["title"]
        out["bridge"].append(Question(rng.choice(named).format(a=title), frozenset((a, b)), half))
        text = described(corpus[a], corpus[b]["title"])
        if text:
            out["described"].append(Question(rng.choice(vague).format(d=text), frozenset((a, b)), half))
    for half in (True, False):
        films = [(a, b) for a, r, b in linked if r == "director" and _half(corpus[a]["title"]) is half]
        for _ in range(PAIRS if len(films) > 1 else 0):
            (a, x), (b, y) = rng.sample(films, 2)
            titles = {"a": corpus[a]["title"], "b": corpus[b]["title"]}
            if x != y:
                text = rng.choice(BRIDGES).format(**titles)
                out["bridge comparison"].append(Question(text, frozenset((a, b, x, y)), half))
            out["comparison"].append(Question(rng.choice(COMPARED).format(**titles), frozenset((a, b)), half))
    return out


def published(text: str) -> tuple[list[dict[str, str]], list[Question]]:
    """(passages, questions) of a file of MuSiQue, HotpotQA or 2WikiMultihopQA."""
    rows = (
        json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.splitlines() if x.strip()]
    )
    place: dict[tuple[str, str], int] = {}
    out = []
    for row in rows:
        if "paragraphs" in row:
            some = [
                (p["title"], p.get("paragraph_text") or p.get("text", ""), p["is_supporting"])
                for p in row["paragraphs"]
            ]
        else:
            needed = {title for title, _ in row["supporting_facts"]}
            some = [(title, " ".join(sentences), title in needed) for title, sentences in row["context"]]
        places = [(place.setdefault((title, text), len(place)), needed) for title, text, needed in some]
        out.append(Question(row["question"], frozenset(p for p, needed in places if needed), _half(row["question"])))
    return [{"title": title, "text": text} for title, text in place], [q for q in out if q.needs]


# ---- who finds

Ranker = Callable[[str], Sequence[int]]


def here(corpus: Sequence[Mapping[str, str]]) -> dict[str, Ranker]:
    passages = [
        Passage(id=str(i), entity=str(i), title=r["title"], text=r["text"], facts=()) for i, r in enumerate(corpus)
    ]
    static = embedder("static")

    def ranker(**how: Any) -> Ranker:
        tool = Search(passages, k=K, cache=1, **how)
        return lambda query: [int(p.id) for p in tool.hits(query)]

    return {
        "BM25": ranker(),
        "with embeddings": ranker(embed=static),
        "with names": ranker(follow=FOLLOW),
        "with embeddings and names": ranker(embed=static, follow=FOLLOW),
    }


def peers(corpus: Sequence[Mapping[str, str]]) -> dict[str, Ranker]:
    """bm25s, alone, in four ways."""
    import Stemmer  # PyStemmer, which bm25s names for this

    texts = [f"{r['title']} {r['text']}" for r in corpus]
    snowball: Any = Stemmer.Stemmer("english")

    def ranker(stopwords: str | None, stemmer: Any, **how: float) -> Ranker:
        index = bm25s.BM25(method="lucene", **how)
        split: dict[str, Any] = {"stopwords": stopwords, "stemmer": stemmer, "show_progress": False}
        index.index(bm25s.tokenize(texts, **split), show_progress=False)
        return lambda query: index.retrieve(bm25s.tokenize([query], **split), k=K, show_progress=False)[0][0].tolist()

    return {
        "default": ranker("en", None),
        "all words": ranker(None, None),
        "stemmed": ranker("en", snowball),
        "stemmed, k1 0.9, b 0.4": ranker("en", snowball, k1=0.9, b=0.4),
    }


def recalls(rank: Ranker, some: Sequence[Question]) -> np.ndarray:
    """[questions] recall@5 in percent."""
    return np.array([100 * len(q.needs & set(rank(q.text)[:K])) / len(q.needs) for q in some])


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of the means of DRAWS draws with replacement."""
    rng = np.random.default_rng(SEED)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(DRAWS)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def measured(corpus: Sequence[Mapping[str, str]], sets: Mapping[str, Sequence[Question]]) -> list[dict[str, Any]]:
    ours, others = here(corpus), peers(corpus)
    versions = {p: version(p) for p in ("bm25s", "wordllama", "numpy")}
    rows = []
    for name, all_ in sets.items():
        first, second = ([q for q in all_ if q.chosen_on is half] for half in (True, False))
        way = max(others, key=lambda w: recalls(others[w], first).mean())
        peer = recalls(others[way], second)
        print(f"{name}: {len(first)} and {len(second)} questions", flush=True)
        for who, rank in {f"bm25s ({way})": others[way], **ours}.items():
            case = f"{name}: {who}"
            begin = time.process_time()
            got = recalls(rank, second)
            took = 1000 * (time.process_time() - begin) / len(second)
            common: dict[str, Any] = {"command": COMMAND, "n": len(second), "one_core": True, **versions}
            low, high = interval(got)
            rows.append(result_row(case, "recall@5", got.mean(), "%", low=low, high=high, **common))
            if who in ours:
                low, high = interval(got - peer)
                rows.append(result_row(case, "less bm25s", (got - peer).mean(), "points", low=low, high=high, **common))
            rows.append(result_row(case, "CPU time per query", took, "ms", better="lower", **common))
            print(
                f"    {who:34s} {got.mean():5.1f}  {(got - peer).mean():+5.1f} [{low:.1f}, {high:.1f}]  {took:.2f} ms"
            )
    return rows


# ---- memory


def large_child(n: int) -> None:
    """In a process of its own: memory and time of n passages, as JSON."""
    embed = embedder("static")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        plain = build_index(made_up(n), Path(folder) / "index")
        lexical = time.process_time() - begin
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        index = plain.hybrid(embed, FOLLOW, Path(folder) / "vectors")
        both = time.process_time() - begin
        some = asked(list(made_up(1000)), 20, random.Random(SEED))
        begin = time.process_time()
        for query in some:
            index.search(query)
        took = 1000 * (time.process_time() - begin) / len(some)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        disk = sum(f.stat().st_size for f in (Path(folder) / "vectors").iterdir()) / 1e6
    measures = {"peak memory": peak, "of BM25 alone": before, "embeddings": both - lexical, "query": took, "disk": disk}
    print(json.dumps(measures))


def large() -> list[dict[str, Any]]:
    seen: list[dict[str, float]] = []
    for n in SIZES:
        command = [sys.executable, "-m", "benchmarks.search_hybrid", "--child", str(n)]
        out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        seen.append(json.loads(out.splitlines()[-1]))
        print(n, seen[-1], flush=True)
    common: dict[str, Any] = {"command": f"{COMMAND} (--large)", "better": "lower", "n": 1, "one_core": True}
    units = {"peak memory": "MB", "of BM25 alone": "MB", "embeddings": "s", "disk": "MB", "query": "ms"}
    return [
        result_row(f"{n:,} passages of 30 words", k, s[k], u, **common)
        for n, s in zip(SIZES, seen)
        for k, u in units.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="measure a file of a published set, and write nothing"
    )
    parser.add_argument("--large", action="store_true", help="measure memory alone")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if missing := [name for name in ("wordllama", "Stemmer") if find_spec(name) is None]:
        parser.error(
            f"the package of {' and of '.join(missing)} is missing: pip install 'espalier[bench]' -c constraints.txt"
        )
    if args.child:
        large_child(args.child)
        return 0
    if args.rows:
        corpus, some = published(args.rows.read_text(encoding="utf-8"))
        measured(corpus, {args.rows.name: some})
        return 0
    if not DATA.exists() and not args.large:
        print(f"{DATA} is not there: its paragraphs are what the questions are made of")
        return 1
    LARGE.write_text(json.dumps(large(), indent=1) + "\n", encoding="utf-8")  # first: a child's peak is at least ours
    if not args.large:
        corpus = json.loads(DATA.read_text(encoding="utf-8"))
        args.out.write_text(json.dumps(measured(corpus, questions(corpus)), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
