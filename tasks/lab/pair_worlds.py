"""Small worlds for recipes of preference data: pairs with planted wrong labels, margins and lengths, and the stages of
a recipe run on them.

A world writes what the stages read into a folder of its own: a one-layer policy that was taught how likely each answer
is (as in tasks/lab/arena.py), and pairs drawn from a hidden quality of the answers. Then the real stages run, with
the knobs that the recipe gives
them, and what they wrote is measured against the hidden quality, exactly: no sampling. Changes of a protocol are by
stage here: `set: {prefer: {optimizer: {lr: 1e-3}}}`. The recipe "base" leaves the pairs and the policy as they were.

The worlds are the functions at the end, and those of tasks/lab/label_worlds.py; what is measured, `Letters.measure`
and the functions below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

from synth.knowledge.kb import Passage
from synth.types import Message, PreferencePair, Problem, seed_for
from tasks.lab.arena import LETTERS, Arena, Said, World, answer
from tasks.lab.worlds import Room, as_sft, different, sums_of, taught
from training.preference.reward_metrics import rank_correlation

# --- policies ---------------------------------------------------------------------------------------------------------


# --- letters: a question, answers with a hidden quality, pairs
# ----------------------------------------------------------


Draw = Callable[["Letters", np.random.Generator, np.ndarray, int], dict[str, Any] | None]


@dataclass(frozen=True)
class Letters:
    """Questions with the same answers each: a letter behind none or some idle letters.

    questions, letters   how many; `idle` the numbers of idle letters that may stand before an answer
    verified             quality is 1 for one letter of a question and 0 for the others, which a verifier knows; else
                         ranks from 0 to 1
    right                the share that the base policy gives the verified letter (0: that of chance)
    alike                all questions have one base distribution, which likes the right letters of all of them
    n                    pairs; `draw` decides a pair: which of two answers is chosen, its columns, or None to draw
                         again
    layers               of the policy
    held                 share of the questions that no pair is about
    """

    name: str
    draw: Draw
    questions: int = 8
    letters: int = 12
    idle: tuple[int, ...] = (0,)
    verified: bool = False
    right: float = 0.0
    alike: bool = False
    n: int = 240
    layers: int = 1
    held: float = 0.0

    @property
    def answers(self) -> list[tuple[str, int]]:
        return [(x, k) for x in LETTERS[: self.letters] for k in self.idle]

    def text(self, i: int) -> str:
        x, k = self.answers[i]
        return " z" * k + answer(x)

    def quality(self, seed: int) -> np.ndarray:
        """[questions, letters] from 0 to 1; verified: the same whatever the seed."""
        out = np.zeros((self.questions, self.letters))
        for q in range(self.questions):
            if self.verified:
                out[q, (5 * q + 1) % self.letters] = 1.0
            else:
                order = np.random.default_rng(seed_for(seed, "letters", self.name, "", q)).permutation(self.letters)
                out[q] = order / (self.letters - 1)
        return out

    def gold(self, seed: int) -> np.ndarray:
        """[questions, answers]"""
        return np.repeat(self.quality(seed), len(self.idle), axis=1)

    def arena(self) -> Arena:
        return _arena(self)

    def problems(self) -> tuple[Problem, ...]:
        """What is asked; its answer is the right letter where there is one."""
        gold = self.quality(0)
        right = [LETTERS[int(g.argmax())] if self.verified else LETTERS[0] for g in gold]
        about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "letters", "split": "train"}
        return tuple(Problem.make(prompt=f"q{LETTERS[q]}", answer=r, **about) for q, r in enumerate(right))

    def pairs(self, seed: int) -> list[PreferencePair]:
        """The world's n pairs, all different."""
        gold, problems = self.gold(seed), self.problems()
        rng = np.random.default_rng(seed_for(seed, "pairs", self.name))
        first_held = self.questions - round(self.held * self.questions)

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair | None:
            q = int(rng.integers(first_held))
            drawn_pairs = self.draw(self, rng, gold[q], q)
            p = self.pair(problems[q], q, **drawn_pairs) if drawn_pairs is not None else None
            return p if p is not None and p.id not in pairs else None

        return different(self.n, drawn, self.name)

    def lay(self, room: Room) -> None:
        arena = self.arena()
        room.kept |= {"gold": self.gold(room.seed), "pairs": self.pairs(room.seed)}
        room.stand("sft", as_sft(self.name, arena, _arena(self, 1) if self.name == "shared" else None))
        room.write("clean", pairs=room.kept["pairs"])
        room.write("questions", problems=list(arena.world.problems))
        room.write("kb", passages=[Passage(id="p", entity="e", title="e", text="nothing", facts=())])

    def pair(
        self, problem: Problem, q: int, *, chosen: int, rejected: int, source: str = "letters", **columns: Any
    ) -> PreferencePair:
        split = columns.pop("split", "train")
        return PreferencePair.make(
            prompt=problem.prompt,
            chosen=self.text(chosen),
            rejected=self.text(rejected),
            source=source,
            problem=problem.id,
            margin=columns.pop("margin", None),
            columns={**columns, "at": [q, chosen, rejected]},
            split=split,
        )

    def measure(self, room: Room) -> dict[str, float]:
        """What the policy thinks of the answers, against the hidden quality and against what it thought at first.

        gold       expected quality of an answer                  order    share of answers in order of quality by
                   log-ratio to the first policy
        strength   rank correlation of the pairs' margins (differences of log-ratios) with their differences of quality
        chosen     nats by which the chosen answers have become likelier, mean over the pairs; rejected: the rejected
                   ones
        margin     mean margin of the pairs; fooled: share of the wrongly labelled pairs whose margin follows the label
        kl         KL(policy || first policy) over the answers; elsewhere: over the questions that no pair is about
        entropy    of the answers, in nats; length: expected tokens of an answer
        apart      mean distance of the log-ratios of a question's two best answers
        floor      least over quantiles of sorted margins less the sorted margins of the first policy, which are the
                   margins of a stochastic dominance of first order
        """
        arena, gold = self.arena(), room.kept["gold"]
        model = arena.base if room.recipe == "base" else room.model()
        now, first = arena.beliefs(model), arena.first
        p, ratio = (np.stack([b.p for b in now]), np.stack([b.logp - a.logp for a, b in zip(first, now, strict=True)]))
        kl = np.stack([(b.p * np.log(np.maximum(b.p, 1e-30) / a.p)).sum() for a, b in zip(first, now, strict=True)])
        at = np.array([x.columns["at"] for x in room.kept["pairs"]])
        c, r = ratio[at[:, 0], at[:, 1]], ratio[at[:, 0], at[:, 2]]
        gap = gold[at[:, 0], at[:, 1]] - gold[at[:, 0], at[:, 2]]
        before = np.stack([a.logp for a in first])
        base = before[at[:, 0], at[:, 1]] - before[at[:, 0], at[:, 2]]
        questions = sorted(set(at[:, 0]))
        rest = [q for q in range(self.questions) if q not in questions]
        best = np.argsort(-gold, axis=1, kind="stable")[:, :2]
        two = np.take_along_axis(ratio, best, 1)
        out = {
            "gold": float((p * gold)[questions].sum(1).mean()),
            "order": float(np.mean([_order(ratio[q], gold[q]) for q in questions])),
            "strength": rank_correlation(c - r, gap) or 0.0,
            "chosen": float(c.mean()),
            "rejected": float(r.mean()),
            "margin": float((c - r).mean()),
            "kl": float(kl[questions].mean()),
            "entropy": float(-(p * np.log(np.maximum(p, 1e-30)))[questions].sum(1).mean()),
            "length": float(np.mean([(b.p * b.tokens).sum() for b in now])),
            "apart": float(np.abs(two[:, 0] - two[:, 1])[questions].mean()),
            "floor": float((np.sort(c - r + base) - np.sort(base)).min()),
        }
        if (gap < 0).any():
            out["fooled"] = float((c - r > 0)[gap < 0].mean())
        if rest:
            out["elsewhere"] = float(kl[rest].mean())
        return out | EXTRA.get(self.name, lambda *_: {})(self, room, model)


@lru_cache
def _arena(world: Letters, run: int = 0) -> Arena:
    """The base policy of a world; `run` 1 is another teaching of it."""
    rng = np.random.default_rng(seed_for(0, "base", world.name))
    policy = []
    gold = world.quality(0)
    for q in range(world.questions):
        share = np.exp(0.7 * rng.normal(size=world.letters))
        if world.alike:
            share = np.where(gold.max(0) > 0, 4.0, 1.0)
        share /= share.sum()
        if world.right:
            right = int(gold[q].argmax())
            share *= (1 - world.right) / (share.sum() - share[right])
            share[right] = world.right
        each = len(world.idle)
        policy.append(tuple(Said(float(share[i // each]) / each, (world.text(i),)) for i in range(len(world.answers))))
    return taught(World(world.problems(), tuple(policy)), layers=world.layers, run=run)


def _order(ratio: np.ndarray, gold: np.ndarray) -> float:
    """Share of pairs of answers of different quality whose log-ratios stand in its order."""
    a, b = np.triu_indices(len(gold), 1)
    differ = gold[a] != gold[b]
    return float((((ratio[a] - ratio[b]) > 0) == (gold[a] > gold[b]))[differ].mean())


# --- how pairs are drawn
# ------------------------------------------------------------------------------------------------


def _two(world: Letters, rng: np.random.Generator, gold: np.ndarray) -> tuple[int, int] | None:
    """Two answers of different quality, the better first."""
    a, b = rng.choice(len(gold), 2, replace=False)
    return None if gold[a] == gold[b] else (int(a), int(b)) if gold[a] > gold[b] else (int(b), int(a))


def _labelled(two: tuple[int, int], wrong: bool, **columns: Any) -> dict[str, Any]:
    better, worse = two
    return {"chosen": worse if wrong else better, "rejected": better if wrong else worse, **columns}


def draw_ranked(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Every label is right; the margin is the difference of quality."""
    two = _two(world, rng, gold)
    return two and _labelled(two, False, margin=float(gold[two[0]] - gold[two[1]]))


def draw_flipped(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Two annotators, of whose labels 5 and 40 in a hundred are wrong."""
    two, who = _two(world, rng, gold), int(rng.integers(2))
    return two and _labelled(two, rng.random() < (0.05, 0.4)[who], annotator="ab"[who])


def draw_close(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Labels are the likelier wrong the closer the two answers are; the margin is what a reward model with noise makes
    of them."""
    two = _two(world, rng, gold)
    if two is None:
        return None
    gap = 5 * (gold[two[0]] - gold[two[1]])
    wrong = rng.random() < 1 / (1 + np.exp(gap))
    return _labelled(two, wrong, margin=float((-gap if wrong else gap) + rng.normal()))


def draw_wordy(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Every label is right, and of eight chosen answers seven are the longer."""
    two = _two(world, rng, gold)
    if two is None:
        return None
    long = len(world.text(two[0])) - len(world.text(two[1]))
    return _labelled(two, False) if (long > 0) == (rng.random() < 7 / 8) and long else None


def draw_few(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """The right letter against a wrong one, three labels in ten turned around."""
    two = _two(world, rng, gold)
    return two and _labelled(two, rng.random() < 0.3)


def draw_sure(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """The right letter of the question against one that is right nowhere; all labels right."""
    nowhere = np.flatnonzero(world.quality(0).max(0) == 0) if world.alike else np.flatnonzero(gold == 0)
    return {"chosen": int(gold.argmax()), "rejected": int(rng.choice(nowhere))}


STEPWISE = "outcome_then_process"  # the maker of pairs that these stand for: rounds name their pairs by it


def draw_lucky(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """The upper half of the letters is right by outcome. Wrong against right; and right against right, where shares of
    right steps tell: those that differ by half are in order, those that differ by a twentieth are a coin's."""
    half = len(gold) // 2
    by = np.argsort(gold, kind="stable")
    if rng.random() < 0.4:
        return {
            "chosen": int(rng.choice(by[half:])),
            "rejected": int(rng.choice(by[:half])),
            "outcome": [1, 0],
            "process": [1.0, 0.5],
            "source": STEPWISE,
        }
    a, b = sorted(rng.choice(by[half:], 2, replace=False), key=lambda i: -gold[i])
    clear = rng.random() < 0.4
    return _labelled(
        (int(a), int(b)),
        not clear and rng.random() < 0.5,
        outcome=[1, 1],
        process=[0.9, 0.4] if clear else [0.7, 0.65],
        source=STEPWISE,
    )


def draw_equals(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Two equally good answers of a question against the others; the one is in four pairs of five."""
    best = np.argsort(-gold, kind="stable")
    return {"chosen": int(best[0 if rng.random() < 0.8 else 1]), "rejected": int(rng.choice(best[2:]))}


def draw_twofold(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Two objectives, named by the source: the quality; and how early in the alphabet a letter stands."""
    first = rng.random() < 0.5
    two = _two(world, rng, gold if first else -np.arange(len(gold)).astype(float))
    return two and _labelled(two, False, source="first" if first else "second")


def draw_told(world: Letters, rng: np.random.Generator, gold: np.ndarray, q: int) -> dict[str, Any] | None:
    """Every label is right; a quarter of the pairs are of the split valid."""
    two = _two(world, rng, gold)
    return two and _labelled(two, False, split="valid" if rng.random() < 0.25 else "train")


# --- what only some worlds measure
# ---------------------------------------------------------------------------------------


def _swap(world: Letters, room: Room, model: nn.Module) -> dict[str, float]:
    """swap: share of (question, other question) in which the right letter of the question is likelier there than that
    of the other."""
    logp, gold = (np.stack([b.logp for b in world.arena().beliefs(model)]), room.kept["gold"].argmax(1))
    rows = [(i, j) for i in range(world.questions) for j in range(world.questions) if gold[i] != gold[j]]
    return {"swap": float(np.mean([logp[i, gold[i]] > logp[i, gold[j]] for i, j in rows]))}


def _obeys(world: Letters, room: Room, model: nn.Module) -> dict[str, float]:
    """obeys: share of held-out pairs in which "Use the word x." makes the answer x likelier than "Avoid the word x."
    does, against what the first policy thought."""
    from training.preference.units import instructed

    arena, held = world.arena(), [p for p in room.kept["pairs"] if p.split == "valid"]
    gain = []
    for verb in ("Use", "Avoid"):
        rows = [
            (instructed(p.prompt, f"{verb} the word {world.answers[p.columns['at'][1]][0]}."), p.chosen) for p in held
        ]
        gain.append(sums_of(arena, model, rows) - sums_of(arena, arena.base, rows))
    return {"obeys": float((gain[0] > gain[1]).mean())}


def _steer(world: Letters, room: Room, model: nn.Module) -> dict[str, float]:
    """steer: expected tokens where length is asked for, less where brevity is; asked: expected quality where a good
    answer is asked for, less where a bad one is (system messages of training/preference/on_policy_pairs.py and
    training/preference/units.py)."""
    arena, gold = world.arena(), room.kept["gold"]
    tokens = np.array([len(arena.renderer.turn(world.text(i))) for i in range(len(world.answers))])

    def under(text: str) -> np.ndarray:
        cases = [
            ((Message(role="system", content=text), *p.prompt), world.text(i))
            for p in arena.world.problems
            for i in range(len(tokens))
        ]
        p = np.exp(sums_of(arena, model, cases)).reshape(world.questions, -1)
        return p / p.sum(1, keepdims=True)

    long, short = under("right 71 short -71"), under("right 71 short 71")
    good, bad = under("good 1 short 10"), under("good 0 short 10")
    return {
        "steer": float(((long - short) * tokens).sum(1).mean()),
        "asked": float(((good - bad) * gold).sum(1).mean()),
    }


def _kept(world: Letters, room: Room, model: nn.Module) -> dict[str, float]:
    """kept: order of the answers by the first objective; second: by the second."""
    ratio = [b.logp - a.logp for a, b in zip(world.arena().first, world.arena().beliefs(model), strict=True)]
    other = -np.arange(world.letters).astype(float)
    return {
        "kept": float(np.mean([_order(r, g) for r, g in zip(ratio, room.kept["gold"], strict=True)])),
        "second": float(np.mean([_order(r, other) for r in ratio])),
    }


EXTRA: dict[str, Callable[..., dict[str, float]]] = {
    "prior": _swap,
    "obeyed": _obeys,
    "steered": _steer,
    "twofold": _kept,
}


# --- the worlds
# -----------------------------------------------------------------------------------------------------------


def ranked() -> Letters:
    """Eight questions, twelve answers each in a hidden order; 240 pairs, all labelled rightly."""
    return Letters("ranked", draw_ranked)


def flipped() -> Letters:
    """As `ranked`, labelled by two annotators: of the one's labels 5 in a hundred are wrong, of the other's 40."""
    return Letters("flipped", draw_flipped)


def close() -> Letters:
    """As `ranked`; labels are the likelier wrong the closer two answers are, and a reward model says by how much they
    differ."""
    return Letters("close", draw_close)


def wordy() -> Letters:
    """Six questions; answers are one of six letters behind none to six idle ones; seven in eight chosen answers are the
    longer."""
    return Letters("wordy", draw_wordy, questions=6, letters=6, idle=(0, 2, 4, 6))


def few() -> Letters:
    """Eight questions with one right answer, which a verifier knows and the first policy gives 15 times in a hundred;
    64 pairs, three labels in ten wrong."""
    return Letters("few", draw_few, verified=True, right=0.15, n=64)


def prior() -> Letters:
    """Eight questions with different right answers; the first policy likes all of these, whatever the question; the
    rejected answers are right nowhere."""
    return Letters("prior", draw_sure, verified=True, alike=True, n=24)


def lucky() -> Letters:
    """Answers that are right by outcome and differ in how many of their steps are: half a share tells, a twentieth is a
    coin's."""
    return Letters("lucky", draw_lucky)


def equals() -> Letters:
    """Two equally good answers to each of eight questions, the one in four pairs of five; the others are worse."""
    return Letters("equals", draw_equals, n=80)


def twofold() -> Letters:
    """Pairs of two sources that speak of two objectives, over the same answers to eight questions."""
    return Letters("twofold", draw_twofold)


def obeyed() -> Letters:
    """As `ranked`; a quarter of the pairs are held out, to be asked under instructions."""
    return Letters("obeyed", draw_told)


def steered() -> Letters:
    """Six questions; answers are one of six letters, one of them right, behind none, two or four idle ones; three
    labels in ten wrong."""
    return Letters("steered", draw_few, verified=True, right=0.3, questions=6, letters=6, idle=(0, 2, 4), n=160)


def unseen() -> Letters:
    """As `ranked`, a policy of two layers; no pair speaks of half of the questions."""
    return Letters("unseen", draw_ranked, layers=2, held=0.5, n=160)


def shared() -> Letters:
    """As `ranked`; in the place of the base model stands a second SFT run from the same start."""
    return Letters("shared", draw_ranked)


def letters() -> dict[str, Letters]:
    worlds = (ranked, flipped, close, wordy, few, prior, lucky, equals, twofold, obeyed, steered, unseen, shared)
    return {f.__name__: f() for f in worlds}
