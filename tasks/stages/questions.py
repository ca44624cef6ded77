"""The stage `questions`: entity-tree questions over the knowledge base, each with a unique answer and no redundant
clue."""

# pyright: reportInvalidTypeForm=false
# (a knob of place is annotated `Place()`, which the plan reads)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from synth.knowledge.compact import CompactKB
from synth.questions.entity_tree import EntityTrees, each_question
from synth.questions.quotas import End
from synth.types import ListDigest, Problem, Quarantined, Split
from synth.verify.exact import normalise
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.knowledge.search_tool import Search
from tasks.planning.pieces import Place
from tasks.planning.settings import Quotas
from tasks.problems import grow as fuzzy_trees
from tasks.runtime.progress import Progress
from tasks.runtime.ray_tasks import mapping
from tasks.runtime.stage import Stage
from tasks.storage import tables

SEARCHED = 10_000  # questions of each number of hops that are searched for as they are: a share of them is exact to 1 %


def questions(
    stage: Stage,
    *,
    n_train: int = 6000,
    n_valid: int = 300,
    n_test: int = 400,
    hops: list = [0.34, 0.33, 0.33],  # noqa: B006 (read by ast, never changed)
    two_clues: float = 0.5,
    closed_world: bool = False,
    search_top_k: int = 3,
    max_words: int = 25,
    max_guess: float = 0.1,
    n_tree_train: int = 0,
    n_tree_valid: int = 0,
    n_tree_test: int = 0,
    depths: list = [2, 3],  # noqa: B006
    levels: list = [1, 2, 3, 4],  # noqa: B006
    max_tree_words: int = 90,
    quotas: Quotas = Quotas(),
    only: list = [],  # noqa: B006
    phrases: dict = {},  # noqa: B006
    workers: Place() = 1,
    ray: Place() = "",
) -> None:
    """Grows questions, each with a proof.

    Args:
        n_train: number of questions of the split train
        n_valid: number of questions of the split valid
        n_test: number of questions of the split test
        hops: shares of questions of 1, 2, 3, ... hops
        two_clues: share of the two-search descriptions that are two clues about names instead of a chain
        closed_world: whether every relation is assumed to be complete
        search_top_k: passages per search with which an oracle must be able to answer the question
        max_words: most words of a question
        max_guess: a question is left out if the most frequent answer is right in more than this share of all cases
        n_tree_train: number of fuzzy trees of the split train (docs/questions.md)
        n_tree_valid: number of fuzzy trees of the split valid
        n_tree_test: number of fuzzy trees of the split test
        depths: depths of the fuzzy trees, equally many of each
        levels: levels of fuzz that the fuzzy trees aim at in turn; a question of another level is refused
        max_tree_words: most words of a fuzzy tree's question
        quotas: how much of one kind the fuzzy trees of a split and depth hold
        only: relations that fuzzy trees may use; empty means all
        phrases: the user's own phrases for relations in fuzzy trees
        workers: processes that make the questions; affects only the time. Each reads the knowledge base for itself
        ray: address of a Ray cluster whose machines make the questions: HOST:PORT, or auto (docs/scaling.md); empty: this machine
            does
    """
    if not hops or min(hops) < 0 or sum(hops) <= 0:
        raise UserError(f"questions: hops = {hops} must be shares of 1, 2, 3, ... hops, not negative and not all zero")
    search = knowledge.search(stage, k=search_top_k)
    wanted = cells({"train": n_train, "valid": n_valid, "test": n_test}, hops)
    trees_wanted = n_tree_train + n_tree_valid + n_tree_test
    knobs = {
        "seed": stage.seed,
        "two_clues": two_clues,
        "closed_world": closed_world,
        "max_words": max_words,
        "max_guess": max_guess,
    }
    chains, ids, reasons = _Chains(search), ListDigest(), Counter[str]()
    fuzzy_card = {}
    finished, grown = (stage.finished(name, Problem, Quarantined) for name in ("questions", "trees"))
    with (
        mapping(stage, ray, workers) as imap,
        stage.progress(sum(wanted.values()) + trees_wanted, "accepted") as bar,
        tables.Writer(stage.out / "problems.parquet", Problem) as accepted,
        tables.Writer(stage.out / "quarantine.parquet", Quarantined) as aside,
    ):

        def write(items: Iterable[Problem | Quarantined]) -> None:
            for x in items:
                if isinstance(x, Quarantined):
                    aside.add(x)
                    reasons[x.reason] += 1
                else:
                    accepted.add(x)
                    ids.add(x.id)

        base = stage.input("kb", "passages.parquet").parent
        if imap is not map:
            for name in ("entities", "relations", "facts"):  # what is damaged is seen here
                stage.input("kb", f"{name}.parquet")
            run = fuzzy_trees.away(imap, fuzzy_trees.chains, base, knobs | {"k": search_top_k}, finished)
            items = each_question(None, wanted, run=run)
        else:
            trees = EntityTrees(knowledge.kb(stage, CompactKB), search, **knobs)
            items = each_question(lambda s, hops, i: finished(f"{s}/{hops}/{i}", lambda: trees(s, hops, i)), wanted)
        write(map(chains.seen, _counted(items, bar)))
        if trees_wanted:
            sought = fuzzy_trees.cells({"train": n_tree_train, "valid": n_tree_valid, "test": n_tree_test}, depths)
            ranges = knowledge.ranges_at(base)
            ends: dict[tuple[Split, int], End] = {}
            left_out = fuzzy_trees.left_out(base, only)
            fuzzy, fuzzy_aside = fuzzy_trees.grow(
                base,
                sought,
                ranges=ranges,
                ends=ends,
                quotas=quotas,
                finished=grown,
                on_accept=bar.update,
                imap=imap,
                seed=stage.seed,
                levels=levels,
                closed_world=closed_world,
                max_words=max_tree_words,
                max_guess=max_guess,
                only=only,
                aside=left_out,
                extra=phrases,
            )
            write(chain(fuzzy, fuzzy_aside))
            fuzzy_card = {
                "trees": fuzzy_trees.counts(fuzzy, fuzzy_aside, sought, ranges, ends) | {"gates": fuzzy_trees.GATES},
                "phrases": phrases,
            }
            if left_out:
                fuzzy_card["trees"]["left_out"] = left_out
        if not accepted.n:
            raise UserError(
                f"questions: no question passed the gates ({dict(sorted(chains.reasons.items()))}): "
                "the knowledge base is too small or too sparse, add sources, or set world_countries of the stage kb"
            )
    count = chains.cells
    card = {
        "produced": accepted.n + aside.n,
        "accepted": accepted.n,
        "quarantined": dict(sorted(reasons.items())),
        "cells": {f"{split}, {h} hops": count[split, h] for split, h in wanted},
        "short": {f"{split}, {h} hops": n - count[split, h] for (split, h), n in wanted.items() if count[split, h] < n},
        "two_clues": chains.two_clues,
        "gates": {
            "max_words": max_words,
            "max_guess": max_guess,
            "search_top_k": search_top_k,
            "proof": "unique and irredundant by SQL over names",
            "world": "closed: every relation taken as complete"
            if closed_world
            else "clues only by relations that are complete or functional",
        },
        "oracle_answers": round(count.total() / max(1, count.total() + chains.reasons["not_answerable"]), 4),
        "one_search_answers": chains.one_search_answers(),
        "kb": knowledge.digest_at(base),
        "problems": ids.name(),
        **fuzzy_card,
    }
    stage.card(card)
    stage.log(
        {
            "accepted": card["accepted"],
            "quarantined": aside.n,
            "short": sum(card["short"].values()),
        }
    )


def cells(sizes: dict[Split, int], shares: Sequence[float]) -> dict[tuple[Split, int], int]:
    """(split, hops) -> number of questions; the numbers of a split add up to its size."""
    edges = [sum(shares[:i]) / sum(shares) for i in range(len(shares) + 1)]
    return {
        (split, i + 1): n
        for split, size in sizes.items()
        for i in range(len(shares))
        if (n := round(size * edges[i + 1]) - round(size * edges[i]))
    }


def _counted(items: Iterable[Problem | Quarantined], bar: Progress[Any]) -> Iterator[Problem | Quarantined]:
    """The items, the accepted of them counted."""
    for x in items:
        bar.update(isinstance(x, Problem))
        yield x


class _Chains:
    """What the card says of entity-tree questions, which pass by. cells: (split, hops) -> questions; reasons: of those that are
    quarantined."""

    def __init__(self, search: Search) -> None:
        self._search, self.two_clues = search, 0
        self.cells, self.reasons = Counter[tuple[Split, int]](), Counter[str]()
        self._searched, self._hits = Counter[int](), Counter[int]()

    def seen(self, item: Problem | Quarantined) -> Problem | Quarantined:
        if isinstance(item, Quarantined):
            self.reasons[item.reason] += 1
            return item
        hops = int(item.difficulty["hops"])
        self.cells[item.split, hops] += 1
        self.two_clues += item.difficulty["clues"] > 1
        if self._searched[hops] < SEARCHED:
            text = f" {normalise(self._search(item.question))} "
            self._searched[hops] += 1
            self._hits[hops] += any(f" {normalise(a)} " in text for a in (item.answer, *item.args["aliases"]))
        return item

    def one_search_answers(self) -> dict[str, float]:
        """For each number of hops, the share of questions (the first SEARCHED) whose answer occurs in the results of a search
        for the question itself."""
        return {f"{hops} hops": round(self._hits[hops] / n, 4) for hops, n in sorted(self._searched.items())}
