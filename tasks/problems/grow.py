"""Fuzzy-tree questions of a knowledge base in a folder: they are grown in one process or several, counted, written,
sampled and proved again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from synth.knowledge.compact import CompactKB
from synth.knowledge.kb import Passage
from synth.knowledge.postings import Postings
from synth.questions.entity_tree import EntityTrees
from synth.questions.fuzzy.model import ModelWording, rewrite
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.lexicon import Lexicon
from synth.questions.fuzzy_tree import FuzzyTrees, chosen, either_way, fuzzy_tree, realiser_of, worded
from synth.questions.publish import OURS, Publisher
from synth.questions.quotas import End, Tally, diversity
from synth.questions.unasked import unasked
from synth.types import Problem, Quarantined, Sampling, Split, digest, from_row
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.knowledge.search_tool import Search
from tasks.knowledge.stored import Stored
from tasks.planning.settings import Quotas
from tasks.runtime import ray_tasks
from tasks.runtime.processes import processes
from tasks.storage import tables
from tasks.storage.finished import Finished, joined
from training.rollout.endpoint import Endpoint, Estimate

Cells = Mapping[tuple[Split, int], int]  # (split, depth) -> questions wanted
_AT_ONCE = 8  # fuzzy trees that a process makes at once: of a block of 64 each has some
SHORTCUT_K = 10  # passages returned by the single search that must not answer a question


def maker(folder: Path, **knobs: Any) -> FuzzyTrees:
    """The questions of the knowledge base in a folder (as written by the stage `kb` or `espalier kb build`). `knobs`:
    those of FuzzyTrees.

    Raises UserError if the folder holds no knowledge base.
    """
    if apart := _apart(folder):
        knobs = {"apart": apart, **knobs}
    if Stored.there(folder):
        return _of_files(Stored(folder), **knobs)
    kb = knowledge.kb_at(folder)
    passages = tables.read(folder / "passages.parquet", Passage)
    search = Search(passages, k=SHORTCUT_K)

    def hits(question: str) -> list[str]:
        return [f"{p.title}: {p.text}" for p in search.hits(question)]

    try:
        return FuzzyTrees.of(kb, passages, hits=hits, **knobs)
    except ValueError as error:
        raise UserError(f"questions: {error}") from error


def _of_files(
    base: Stored, *, only: Sequence[str] = (), aside: Collection[str] | None = None, **knobs: Any
) -> FuzzyTrees:
    """`FuzzyTrees.of` of a base that is not read into objects."""
    ranking = base.ranking()

    def hits(question: str) -> list[str]:
        return [f"{title}: {text}" for title, text in map(base.passage, ranking.top(question, SHORTCUT_K))]

    try:
        among = chosen(base.relations, only) or worded(base.postings, aside)
        lexicon = Lexicon(Graph(base.postings, among), base.aliases)
        if among and len(among) < len(base.relations):
            knobs["everything"] = realiser_of(Lexicon(Graph(base.postings), base.aliases), knobs.get("extra"))
        write = bool(either_way(c.relation for c in lexicon.graph.columns.values()))
        return FuzzyTrees(lexicon, base.connection(write=write), base.open, hits=hits, **knobs)
    except ValueError as error:
        raise UserError(f"questions: {error}") from error


def _apart(folder: Path) -> list[str]:
    """The relations of a knowledge base of which its schema says that they have no inverse."""
    path = folder / "card.json"
    return json.loads(path.read_text(encoding="utf-8")).get("apart", []) if path.is_file() else []


def left_out(folder: Path, only: Sequence[str] = ()) -> dict[str, str]:
    """The relations of a knowledge base that questions leave out, with the reason (`synth.questions.unasked`); none where
    `only` names those that they use. With `aside`, `grow` need not look at each value again, in no process."""
    if only:
        return {}
    return unasked(Stored(folder).postings if Stored.there(folder) else Postings.of(knowledge.kb_at(folder)))


def chains(folder: Path, *, k: int, **knobs: Any) -> EntityTrees:
    """The entity-tree questions of the knowledge base in a folder. k: passages of a search; `knobs`: of EntityTrees."""
    return EntityTrees(knowledge.kb_at(folder, CompactKB), knowledge.load(folder / "passages.parquet", k=k), **knobs)


def away(
    imap: Callable[..., Iterator[Any]],
    build: Callable[..., Any],
    folder: Path,
    knobs: Mapping[str, Any],
    finished: Finished | None = None,
    ask: Callable[..., Any] | None = None,
    most: int = ray_tasks.EACH,
) -> Callable[..., Iterator[Any]]:
    """A `map` of makers of items over other processes, in order. build(folder, **knobs) makes them there, once in a process, and is
    called, or `ask` of it, with the lists' values in the place of what is mapped; imap: of these processes (`ray_tasks.mapping`);
    finished: as of `grow`; most: items that one of them makes at once."""

    def run(_: Callable | None, *lists: Iterable) -> Iterator[Any]:
        keys, of = zip(*lists, strict=True), (build, folder, dict(knobs))
        return ray_tasks.away(imap, _built, of, keys, finished, ask, most)

    return run


def _built(build: Callable[..., Any], folder: Path, knobs: dict[str, Any]) -> Any:
    return build(folder, **knobs)


def grow(
    folder: Path,
    wanted: Cells,
    *,
    workers: int = 1,
    tries: int = 8,
    quotas: Quotas = Quotas(),
    ranges: Mapping[str, str] | None = None,
    finished: Finished | None = None,
    imap: Callable[..., Iterator[Any]] | None = None,
    ends: dict[tuple[Split, int], End] | None = None,
    on_accept: Callable[[], object] = lambda: None,
    **knobs: Any,
) -> tuple[list[Problem], list[Quarantined]]:
    """Questions of the knowledge base in a folder, and the quarantined ones. The result is the same for any number of
    workers.

    `finished` stores items by key, and those that it knows are not made again. `imap`: of other processes, which then make them
    (`workers` asks for so many on this machine), or `map`. `ranges`: of `knowledge.ranges_at`, where they were read already. `ends`,
    `on_accept`: of `fuzzy_tree`.
    """
    try:
        tally = Tally(knowledge.ranges_at(folder) if ranges is None else ranges, **asdict(quotas))
    except ValueError as error:
        raise UserError(str(error)) from error
    make_tree = partial(fuzzy_tree, counts=wanted, tries=tries, tally=tally, ends=ends, on_accept=on_accept)
    with nullcontext(imap) if imap is not None else processes(workers) as others:
        if others is not map:
            run = away(others, maker, folder, knobs, finished, most=_AT_ONCE)
            pairs = away(others, maker, folder, knobs, ask=FuzzyTrees.pairs)
            return make_tree(None, run=run, pairs=lambda split, depth: next(pairs(None, [split], [depth])))
    trees = maker(folder, **knobs)
    if finished is None:
        return make_tree(trees, pairs=trees.pairs)
    return make_tree(lambda *key: finished(joined(key), lambda: trees(*key)), pairs=trees.pairs)


def cells(sizes: Mapping[Split, int], depths: Sequence[int]) -> dict[tuple[Split, int], int]:
    """The same number of questions of each depth; the first depths take the remainder. Raises UserError for a depth
    below 2."""
    if not depths or min(depths) < 2:
        raise UserError(
            f"questions: depths = {list(depths)} must be depths of 2 or more: a tree has no constant beside its root"
        )
    return {
        (s, d): n // len(depths) + (i < n % len(depths)) for s, n in sizes.items() for i, d in enumerate(depths) if n
    }


def counts(
    accepted: Sequence[Problem],
    quarantined: Sequence[Quarantined],
    wanted: Cells,
    ranges: Mapping[str, str],
    ends: Mapping[tuple[Split, int], End] | None = None,
) -> dict[str, Any]:
    """The part of a card about trees: counts that add up, cells with fewer questions than wanted, why these are fewer or
    over a share, difficulty by depth and level, and how alike the questions are. ranges: of `knowledge.ranges_at`."""
    have = Counter((p.split, int(p.difficulty["hops"])) for p in accepted)
    by: dict[str, list[Problem]] = {}
    for p in sorted(accepted, key=lambda p: (p.difficulty["hops"], p.difficulty["level"])):
        by.setdefault(f"depth {p.difficulty['hops']:.0f}, level {p.difficulty['level']:.0f}", []).append(p)
    return {
        "produced": len(accepted) + len(quarantined),
        "accepted": len(accepted),
        "quarantined": tables.counts(quarantined),
        "short": {f"{s}, depth {d}": n - have[s, d] for (s, d), n in wanted.items() if have[s, d] < n},
        "limits": {f"{s}, depth {d}": why for (s, d), end in (ends or {}).items() if (why := end.why())},
        "difficulty": {
            k: {a: _mean(some, a) for a in ("clues", "fuzz", "lookups", "bits")} | {"n": len(some)}
            for k, some in by.items()
        },
        "diversity": diversity(accepted, ranges),
        "problems": digest([p.id for p in accepted]),
    }


def _mean(problems: Sequence[Problem], axis: str) -> float:
    return round(sum(p.difficulty[axis] for p in problems) / len(problems), 2)


GATES = {
    "unique": "the root is the only entity and has one answer, by SQL over names",
    "on_the_edge": "unique by all that a reader may count in, and no root at an end of what its vague words mean",
    "necessary": "without each single clue another answer fits too, shown by a witness and checked by SQL",
    "single_clue": "no clue suffices alone",
    "off_level": "level is the mean level of the clues about the root, but for the one that leads to a constant, rounded; no other than the levels asked for",
    "guessable": "the most frequent answer to what is asked is right in at most the share max_guess of all cases (card.json, knobs)",
    "constant_beside": "no constant beside the root",
    "answer_in_text": "neither the answer nor a hidden name is in the text",
    "unclean": "answers, and texts in clues, are no list, sentence, amount with its unit, address or remark",
    "implied": "no constant leads to the answer by one functional relation",
    "roundtrip": "the text is read back as the pattern alone",
    "not_answerable": "an oracle finds the answer by opening pages",
    "duplicate": "no two questions have the same structure, and none has four fifths of the runs of three words of another",
    "over_quota": "no attribute of a root is asked more often than quotas.root_attribute says; shares over the quotas only fill what is left",
    "quota_full": "relations and shapes that have their share are left out as questions grow, and are taken again only to fill what is left",
    "split_leak": "no test root occurs in a question of another split, be it as a clue",
    "one_search": f"the answer and the root do not stand in the best 3 of {SHORTCUT_K} passages for the question itself",
}


def write(
    folder: Path, kb: Path, accepted: Sequence[Problem], quarantined: Sequence[Quarantined], card: Mapping[str, Any]
) -> None:
    """problems.parquet, quarantine.parquet, card.json; and the files for publication, questions.jsonl
    (`synth.questions.publish`) and its data card CARD.md."""
    folder.mkdir(parents=True, exist_ok=True)
    tables.write(folder / "problems.parquet", accepted, Problem)
    tables.write(folder / "quarantine.parquet", quarantined, Quarantined)
    publisher = Publisher(Stored(kb) if Stored.there(kb) else knowledge.kb_at(kb), card.get("phrases"))
    with (folder / "questions.jsonl").open("w", encoding="utf-8") as out:
        for p in accepted:
            out.write(json.dumps(publisher.row(p), ensure_ascii=False, sort_keys=True) + "\n")
    (folder / "card.json").write_text(
        json.dumps(card, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "CARD.md").write_text(data_card(card, accepted), encoding="utf-8")


def data_card(card: Mapping[str, Any], accepted: Sequence[Problem]) -> str:
    """The data card for readers of the file, in Markdown: how it was made, what was proved and how to prove it again,
    its counts."""
    splits = Counter(p.split for p in accepted)
    quarantined = [f"| {reason} | {n} |" for reason, n in card["quarantined"].items()]
    limits = card.get("limits", {})
    hard = [
        f"| {cell} | {v['n']} | {v['clues']:g} | {v['fuzz']:g} | {v['lookups']:g} |"
        for cell, v in card["difficulty"].items()
    ]
    wording = (
        "the words of a model, read back by another prompt" if "model" in card else "templates, read back by a parser"
    )
    return "\n".join(
        [
            "# Questions about a knowledge base",
            "",
            f"{card['accepted']} questions ({', '.join(f'{n} {s}' for s, n in sorted(splits.items()))}) of {card['produced']} that were made; the",
            "split is that of the root entity, and no question of another split touches a test root. Answers are compared exactly, aliases count.",
            "",
            f"- Knowledge base: `{card['kb']}` (digest of its entities, relations and facts). World: {card['world']}.",
            f"- Text: {wording}. Seed {card.get('knobs', {}).get('seed', '')}; file `{card['problems'][:16]}`.",
            "- Prove it again: `espalier verify questions.jsonl --kb DIR` needs this file and the knowledge base, nothing else.",
            "- Licence: that of the sources of the knowledge base; their names and facts are in the questions.",
            "",
            "## Gates",
            "",
            *(f"- `{name}`: {what}" for name, what in card["gates"].items()),
            "",
            "## Difficulty",
            "",
            "| cell | questions | clues | mean fuzz level | pages that an oracle opens |\n|---|---:|---:|---:|---:|",
            *hard,
            "",
            *(["## Limits", "", *(f"- {cell}: {why}." for cell, why in limits.items()), ""] if limits else []),
            "## Quarantined",
            "",
            "| reason | questions |\n|---|---:|",
            *quarantined,
            "",
        ]
    )


def reword(
    folder: Path, problems: Sequence[Problem], endpoint: Endpoint, *, seed: int, dry_run: bool = False, **knobs: Any
) -> tuple[list[Problem], list[Quarantined]] | Estimate:
    """Rewords the questions with a model (`synth.questions.fuzzy.model`). With `dry_run`, returns an upper bound of the
    usage instead; it assumes that reading back takes as many tokens as writing, with the schema as the prompt. `knobs`
    are those that the questions were grown with. Raises UserError with the endpoint's errors."""
    trees = maker(folder, seed=seed, **knobs)
    wording = ModelWording(endpoint, trees.wording, trees.lexicon)
    if not dry_run:
        try:
            return rewrite(trees, problems, wording, seed=seed)
        except ValueError as error:
            raise UserError(str(error)) from error
    return endpoint.estimate(wording.prompts_of(problems, seed=seed), Sampling(max_tokens=2 * wording.max_tokens))


def read(path: Path) -> tuple[list[Problem], list[tuple[str, str]]]:
    """(our problems, foreign rows as (place, JSON text)) of a .parquet or .jsonl file. Raises UserError for any other
    file."""
    if path.suffix == ".parquet":
        return tables.read(path, Problem), []
    published, theirs = rows(path)
    ours = []
    for i, row in published:
        try:
            ours.append(from_row(Problem, row))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} line {i} is not a row of published questions ({error}): publish it again"
            ) from error
    return ours, theirs


def rows(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[str, str]]]:
    """((line, row) of rows marked as ours, foreign rows as (place, JSON text)) of a .jsonl or .json file. Raises
    UserError for any other file."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: a question may hold U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): name a file of questions, .parquet or .jsonl") from error
    if path.suffix == ".json":
        lines = _list(path, lines)
    ours, theirs = [], []
    for i, line in enumerate(lines, 1):
        if line.strip():
            row = _object(line)
            if OURS & row.keys():
                ours.append((i, row))
            else:
                theirs.append((f"{path.name} line {i}", line))
    return ours, theirs


def _list(path: Path, lines: Sequence[str]) -> list[str]:
    try:
        rows = json.loads("\n".join(lines))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): fix it") from error
    if not isinstance(rows, list):
        raise UserError(f"{path} is not a list of questions: write [{{...}}, {{...}}], or one per line as .jsonl")
    return [json.dumps(r, ensure_ascii=False) for r in rows]


def _object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def named(schema: Path) -> list[str]:
    """The relations that a schema.yaml names. Raises UserError if the file is not a schema."""
    try:
        data = yaml.safe_load(schema.read_text(encoding="utf-8"))
        return [
            *(f for source in data.get("sources", ()) for f in source.get("fields", ())),
            *data.get("relations", ()),
        ]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise UserError(
            f"{schema} is no schema ({' '.join(str(error).split())[:200]}): `espalier kb build` writes one to begin with"
        ) from error


def rising(problems: Sequence[Problem], n: int = 20, *, seed: int = 0) -> list[Problem]:
    """`n` questions from the easiest to the hardest: all are ordered by depth, pages and clues and cut into n parts,
    and one of each part is chosen by hash."""
    ordered = sorted(
        problems, key=lambda p: (p.difficulty["hops"], p.difficulty.get("lookups", 0), p.difficulty["clues"], p.id)
    )
    n = min(n, len(ordered))
    parts = [ordered[len(ordered) * i // n : len(ordered) * (i + 1) // n] for i in range(n)]
    return [min(part, key=lambda p: digest(seed, p.id)) for part in parts]
