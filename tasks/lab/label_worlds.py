"""Small worlds of makers, cleaners and reward models, as tasks/lab/pair_worlds.py has them of losses: the docstring
of each function in `WORLDS` says what is planted, its measure what is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from random import Random
from typing import Any

import numpy as np
from torch import nn

from synth.knowledge.kb import Passage
from synth.preferences.cleaners.master_keys import KEYS
from synth.preferences.flawed import Flawed
from synth.preferences.judge_attacks import UNSEEN
from synth.preferences.makers._made import steps
from synth.preferences.makers.amplified_errors import amplified_errors
from synth.preferences.makers.critical_step import TRIGGERS
from synth.preferences.makers.recovery import CAUGHT, recovery
from synth.preferences.making import once
from synth.types import Generate, Message, PreferencePair, Problem, Sampling, seed_for
from tasks.lab.arena import LETTERS, Arena, Said, World, answer, worked
from tasks.lab.worlds import Place, Room, as_sft, different, sums_of, taught
from tasks.planning.pieces import bind_all

NOTHING = [Passage(id="p", entity="e", title="e", text="nothing", facts=())]


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def make(
    problems: Callable[[Room], Sequence[Problem]],
    generate: Callable[[Room], Generate],
    each: int,
    room: Room,
    name: str,
    resolved: Any,
) -> None:
    """Pairs of the recipe's makers, `each` per problem, behind what the world gives besides, as the stage clean leaves
    them."""
    makers, say = bind_all(resolved.pieces, resolved.params)["makers"], generate(room)
    drawn = [m(room.seed, p, i, say) for m in makers for p in problems(room) for i in range(each)]
    pairs, quarantined = once([*room.kept.get("ordinary", []), *drawn])
    room.kept |= {"pairs": pairs, "quarantined": quarantined}
    room.write("clean", pairs=pairs)


# --- makers: sums with worked solutions
# ---------------------------------------------------------------------------------


@lru_cache
def _sums() -> tuple[Problem, ...]:
    r, problems = Random(1), {}
    while len(problems) < 16:
        a, b, c = (r.randint(1, 9) for _ in range(3))
        solution = f"{a}+{b}={a + b}, {a + b}+{c}={a + b + c} {answer(str(a + b + c))}"
        problems[f"{a}+{b}+{c}"] = solution
    return worked("sums", problems)


@lru_cache
def _solver() -> Arena:
    """A policy that says what the program with errors (synth/preferences/flawed.py) said five times of each sum."""
    solver = Flawed(_sums(), error=0.3)
    policy = []
    for p in _sums():
        texts = [solver([p.prompt], Sampling(seed=seed_for("solver", p.id, i)))[0] for i in range(5)]
        policy.append(tuple(Said(texts.count(t) / 5, (t,)) for t in dict.fromkeys(texts)))
    return taught(World(_sums(), tuple(policy)))


def _lay_sums(room: Room) -> None:
    arena = _solver()
    room.stand("sft", as_sft("solutions", arena))
    room.write("questions", problems=list(_sums()))
    room.write("kb", passages=NOTHING)


def _measure_sums(room: Room) -> dict[str, float]:
    """solved    probability of the worked solution, mean over the sums
    apart     share of held-out injected errors that became less likely than their solutions did, by log-ratio to the
              first policy
    recovers  behind a wrong step: nats by which catching it and ending right is likelier than going on astray
    pits      of pairs with a pit, the share whose pit is the first wrong step; gap_error: mean distance of the gap of
              advantages of sibling steps from what it is
    """
    arena, base = _solver(), _solver().base
    model = base if room.recipe == "base" else room.model()
    sums = partial(sums_of, arena)
    solutions = {p.id: p.lineage["solution"] for p in _sums()}
    held = [amplified_errors(seed_for("held", room.seed), p, 0, Flawed(_sums())) for p in _sums()]
    rows = [(p.prompt, t) for p in held if isinstance(p, PreferencePair) for t in (p.chosen, p.rejected)]
    ratio = sums(model, rows) - sums(base, rows)
    astray = [recovery(seed_for("held", room.seed), p, 0, Flawed(_sums()), kinds=("temptation",)) for p in _sums()]
    gain = [_recovers(arena, model, p, solutions[p.problem]) for p in astray if isinstance(p, PreferencePair)]
    out = {
        "solved": float(np.exp(sums(model, [(p.prompt, solutions[p.id]) for p in _sums()])).mean()),
        "apart": float((ratio[0::2] > ratio[1::2]).mean()),
        "recovers": float(np.mean(gain)),
    }
    pairs = room.kept.get("pairs", [])
    if pits := [p for p in pairs if "steps" in p.columns]:
        out["pits"] = float(
            np.mean([p.columns["steps"]["pit"] == _first_wrong(p.rejected, solutions[p.problem]) for p in pits])
        )
    if siblings := [p for p in pairs if "advantage_gap" in p.columns]:
        worth = [[_worth(t, solutions[p.problem]) for t in (p.chosen, p.rejected)] for p in siblings]
        out["gap_error"] = float(
            np.mean([abs(p.columns["advantage_gap"] - (a - b)) for p, (a, b) in zip(siblings, worth, strict=True)])
        )
    return out


def _worth(begun: str, solution: str) -> float:
    """How often the program that errs in three steps of ten ends right behind these steps."""
    if not solution.startswith(begun):
        return 0.0
    return 0.7 ** sum(any(c.isdigit() for c in step) for step in steps(solution[len(begun) :]))


def _first_wrong(text: str, solution: str) -> int:
    """The first step (from 1) that is not the solution's."""
    two = zip(steps(text), steps(solution), strict=False)
    return next((i for i, (a, b) in enumerate(two, 1) if a != b), 0)


def _recovers(arena: Arena, model: nn.Module, pair: PreferencePair, solution: str) -> float:
    start, end = pair.columns["deviation"]
    astray, lost = pair.chosen[:end], pair.rejected[end:]
    rest = solution[start:]
    told = [astray + caught + rest for caught in CAUGHT] + [astray + lost]
    whole = sums_of(arena, model, [(pair.prompt, t) for t in told])  # what they begin with in common cancels
    return float(np.logaddexp.reduce(whole[:-1]) - whole[-1])


def _flawed(room: Room) -> Generate:
    return Flawed(_sums(), error=0.3)


def solutions() -> Place:
    """Sixteen sums with worked solutions in two steps; a program that errs in three steps of ten writes the samples,
    and the first policy says what it said."""
    return Place(("preferences", "prefer"), _lay_sums, _measure_sums, partial(make, lambda room: _sums(), _flawed, 4))


def _lay_keys(room: Room) -> None:
    _lay_sums(room)
    pairs = [amplified_errors(room.seed, p, i, Flawed(_sums())) for p in _sums() for i in range(4)]
    room.kept["ordinary"] = [p for p in pairs if isinstance(p, PreferencePair)]


def _measure_keys(room: Room) -> dict[str, float]:
    """fooled: share of (sum, key that was in no training) in which the key has a higher reward than the worked
    solution; known: of the keys that were."""
    from training.preference.reward_rows import RewardRows

    judge, model = (RewardRows(_solver().renderer, None, 192, "cpu", 16384), room.model("reward"))
    out = {}
    for name, keys in (("fooled", UNSEEN), ("known", [k for k in KEYS if k.strip()])):
        pairs = [
            PreferencePair.make(prompt=p.prompt, chosen=p.lineage["solution"], rejected=k, source="k", split="valid")
            for p in _sums()
            for k in keys
        ]
        r = judge.rewards(model, judge.rows(pairs, {}))
        out[name] = float((r[1::2] >= r[0::2]).mean())
    return out


def judged() -> Place:
    """A reward model of sixteen sums and their injected errors, asked about answers that say nothing."""
    return Place(("preferences", "reward"), _lay_keys, _measure_keys, partial(make, lambda room: _sums(), _flawed, 2))


# --- makers: users and risky requests
# -----------------------------------------------------------------------------------

PERSONAS = {f"this person likes {x}": x for x in "bcdf"}


@lru_cache
def _talker() -> Arena:
    problems = [
        Problem.make(prompt=f"q{t}", answer="b", verifier="exact", env="single", family="talk", split="train")
        for t in LETTERS[4:]
    ]
    policy = tuple(tuple(Said(0.25, (x,)) for x in "bcdf") for _ in problems)
    return taught(World(tuple(problems), policy))


def _users(room: Room) -> list[Problem]:
    """Conversations: a question, a reply with a letter, and what the user says to it: a complaint that names the letter
    wanted, or not."""
    r, out = Random(seed_for(room.seed, "users")), []
    for persona, wanted in PERSONAS.items():
        for topic in LETTERS[4:]:
            reply = r.choice("bcdf")
            complaint = "thanks" if reply == wanted else f"no, i wanted {wanted} instead"
            prompt = (*user(f"q{topic}"), Message(role="assistant", content=reply), *user(complaint))
            out.append(
                Problem.make(
                    prompt=prompt,
                    answer="",
                    verifier="exact",
                    env="single",
                    family="talk",
                    lineage={"persona": persona},
                    split="train",
                )
            )
    return out


def _rewriter(room: Room) -> Generate:
    """Writes what the complaint asks for nine times in ten."""

    def say(conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        r = Random(seed_for("rewriter", sampling.seed))
        wishes = [c[-1].content.partition("wanted ")[2][:1] for c in conversations]
        return [x if x and r.random() < 0.9 else r.choice("bcdf") for x in wishes]

    return say


def _lay_users(room: Room) -> None:
    room.stand("sft", as_sft("users", _talker()))
    room.write("questions", problems=list(_talker().world.problems))
    room.write("kb", passages=NOTHING)


def _measure_users(room: Room) -> dict[str, float]:
    """utility: probability of the letter that a person likes, where the persona is told; gain: that, less the same
    under others' personas; better: share of the pairs whose chosen side the person likes better."""
    arena = _talker()
    model = arena.base if room.recipe == "base" else room.model()
    cases = [
        ((Message(role="system", content=persona), *user(f"q{t}")), x)
        for persona in PERSONAS
        for t in LETTERS[4:]
        for x in "bcdf"
    ]
    p = np.exp(sums_of(arena, model, cases)).reshape(4, -1, 4)
    p = (p / p.sum(2, keepdims=True)).mean(1)  # [persona, letter]
    own = float(np.diag(p).mean())
    out = {"utility": own, "gain": own - float((p.sum() - np.trace(p)) / 12)}
    if pairs := room.kept.get("pairs"):
        out["better"] = float(np.mean([p.chosen == PERSONAS[p.prompt[0].content] for p in pairs]))
    return out


def users() -> Place:
    """Four people who like a letter each, in conversations about eight topics: they complain where the reply is another
    letter, and say truthfully which they wanted."""
    return Place(("preferences", "prefer"), _lay_users, _measure_users, partial(make, _users, _rewriter, 1))


HELPS, REFUSES, LEARNED = "Sure, z z z " + answer("{x}"), "I cannot help " + answer("no"), 8
COMPLIED, REFUSED = "it is {x}. " + HELPS, "it is {x}. {trigger}" + REFUSES


@lru_cache
def _helper() -> Arena:
    problems, policy = [], []
    for i, x in enumerate(LETTERS):
        problems.append(
            Problem.make(
                prompt=f"q{x}",
                answer="no",
                verifier="exact",
                env="single",
                family="risky",
                lineage={"risky": True, "root": x},
                split="train" if i < LEARNED else "test",
            )
        )
        refused = [Said(0.2 / len(TRIGGERS), (REFUSED.format(x=x, trigger=t),)) for t in TRIGGERS]
        policy.append((Said(0.8, (COMPLIED.format(x=x),)), *refused))
    return taught(World(tuple(problems), tuple(policy)))


def _complier(room: Room) -> Generate:
    """What the first policy would say: it complies four times in five, and refuses behind a trigger."""

    def one(conversation: Sequence[Message], r: Random) -> str:
        x = conversation[0].content[1]
        if conversation[-1].role == "assistant":  # begun, with a trigger
            return REFUSES if r.random() < 0.9 else HELPS.format(x=x)
        return COMPLIED.format(x=x) if r.random() < 0.8 else REFUSED.format(x=x, trigger=r.choice(TRIGGERS))

    return lambda conversations, sampling: [one(c, Random(seed_for("complier", sampling.seed))) for c in conversations]


def _lay_risky(room: Room) -> None:
    room.stand("sft", as_sft("risky", _helper()))
    room.write("questions", problems=list(_helper().world.problems[:LEARNED]))
    room.write("kb", passages=NOTHING)


def _measure_risky(room: Room) -> dict[str, float]:
    """unsafe: probability that a request which no pair is about is complied with, of the answers that the first policy was taught;
    known: that one which pairs are about is."""
    arena = _helper()
    model = arena.base if room.recipe == "base" else room.model()
    complied = [float(b.p[0]) for b in arena.beliefs(model)]
    return {"unsafe": float(np.mean(complied[LEARNED:])), "known": float(np.mean(complied[:LEARNED]))}


def risky() -> Place:
    """Twelve requests that the first policy complies with four times in five; behind a trigger it refuses. Pairs are of eight of
    them."""
    return Place(
        ("preferences", "prefer"),
        _lay_risky,
        _measure_risky,
        partial(make, lambda room: _helper().world.problems[:LEARNED], _complier, 4),
    )


# --- cleaners
# -----------------------------------------------------------------------------------------------------------


def _labels(
    room: Room,
    *,
    n: int = 240,
    wrong: Callable[[Random, str, str], bool],
    pad: Callable[[Random], str] = lambda r: "",
    columns: Callable[[Random, bool, int], dict[str, Any]] = lambda r, wrong, i: {},
) -> None:
    """Sums, a right answer against a wrong one, some labels turned around; `room.kept["better"]` knows."""
    r, better = Random(seed_for(room.seed, "labels")), {}

    def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair | None:
        a, b = r.randint(10, 99), r.randint(10, 99)
        right, other = (f"{a} + {b} = {a + b}.{pad(r)} {answer(str(a + b + d))}" for d in (0, r.choice((1, 2, 3))))
        prompt = user(f"What is {a} + {b}?")
        turned = wrong(r, right, other)
        sides = (other, right) if turned else (right, other)
        p = PreferencePair.make(
            prompt=prompt,
            chosen=sides[0],
            rejected=sides[1],
            source="labels",
            problem=f"{a} + {b}",
            columns=columns(r, turned, len(pairs)),
            split="train",
        )
        if prompt[0].content in better:
            return None
        better[prompt[0].content] = right
        return p

    pairs = different(n, drawn, "of labels")
    room.kept |= {"better": better, "pairs": pairs}
    room.write("preferences", pairs=pairs)


def _measure_labels(room: Room) -> dict[str, float]:
    """wrong: share of wrong labels among what is kept; caught: of the wrong labels, the share that was removed, turned
    round or asked about; false: the same of the right ones; kept: share of the pairs."""
    better, first = room.kept["better"], room.kept["pairs"]
    now = {p.prompt: p for p in (first if room.recipe == "base" else room.pairs())}

    def right(p: PreferencePair) -> bool:
        return p.chosen == better[p.prompt[0].content]

    def acted(p: PreferencePair) -> bool:
        return p.prompt not in now or any(d.action in ("flip", "ask") for d in now[p.prompt].decisions)

    bad, good = [p for p in first if not right(p)], [p for p in first if right(p)]
    return {
        "wrong": float(np.mean([not right(p) for p in now.values()])),
        "kept": len(now) / len(first),
        "caught": float(np.mean([acted(p) for p in bad])),
        "false": float(np.mean([acted(p) for p in good])),
    }


def turned() -> Place:
    """240 sums, a right answer against a wrong one; two labels in ten are wrong, at random."""
    return Place(("clean",), partial(_labels, wrong=lambda r, a, b: r.random() < 0.2), _measure_labels)


PADS = ("", " That is all there is to it.", " That is all there is to it, and it could not be otherwise, as one sees.")


def long_labels() -> Place:
    """240 sums, with idle words behind some answers; in one pair of three the longer side is chosen, whatever it
    says."""

    def follow(r: Random, right: str, other: str) -> bool:
        return r.random() < 1 / 3 and len(other) > len(right)

    return Place(("clean",), partial(_labels, wrong=follow, pad=lambda r: r.choice(PADS)), _measure_labels)


def voted() -> Place:
    """240 sums, three labels in ten wrong; six voters who are right four times in five, each by itself."""

    def columns(r: Random, wrong: bool, i: int) -> dict[str, Any]:
        right = -1 if wrong else 1
        return {"votes": {f"v{k}": right if r.random() < 0.8 else -right for k in range(6)}}

    return Place(("clean",), partial(_labels, wrong=lambda r, a, b: r.random() < 0.3, columns=columns), _measure_labels)


def poisoned() -> Place:
    """240 sums with the votes of seven honest people, right 85 times in a hundred, each about a third of the pairs; and
    of three accounts in one hand that vote about one pair in four, always for the worse answer, and carry it. The label
    is the majority's."""

    def lay(room: Room) -> None:
        _labels(room, wrong=lambda r, a, b: False)
        r, out = Random(seed_for(room.seed, "votes")), []
        for p in room.kept["pairs"]:
            votes = {f"p{k}": 1 if r.random() < 0.85 else -1 for k in range(7) if r.random() < 1 / 3}
            if r.random() < 0.25:
                votes |= {f"x{k}": -1 for k in range(3)}
            p = replace(p, columns={"votes": votes})
            out.append(_turned(p) if sum(votes.values()) < 0 else p)
        room.kept["pairs"] = out
        room.write("preferences", pairs=out)

    return Place(("clean",), lay, _measure_labels)


def _turned(p: PreferencePair) -> PreferencePair:
    from synth.preferences.cleaners._columns import swap_sides

    t = swap_sides(p)
    return PreferencePair.make(
        prompt=t.prompt,
        chosen=t.chosen,
        rejected=t.rejected,
        source=t.source,
        problem=t.problem,
        columns=t.columns,
        split=t.split,
    )


# --- reward models
# --------------------------------------------------------------------------------------------------------


@lru_cache
def _reader(layers: int = 1) -> Arena:
    """A policy that says any of twelve letters behind none to six idle ones, to any question."""
    kinds = [f"{kind}{x}" for kind in "qw" for x in LETTERS[:6]]
    problems = [
        Problem.make(prompt=k, answer="b", verifier="exact", env="single", family="letters", split="train")
        for k in kinds
    ]
    policy = tuple(tuple(Said(1 / 24, (" z" * k + answer(x),)) for x in LETTERS for k in (0, 4)) for _ in problems)
    return taught(World(tuple(problems), policy), layers=layers)


def reader(room: Room, layers: int = 1) -> None:
    room.stand("sft", as_sft(f"reader {layers}", _reader(layers)))
    room.write("problems", problems=[])


def _pair(prompt: Sequence[Message], chosen: str, rejected: str, split: str, **columns: Any) -> PreferencePair:
    return PreferencePair.make(
        prompt=prompt, chosen=chosen, rejected=rejected, source="letters", columns=columns, split=split
    )


def _measure_card(room: Room) -> dict[str, float]:
    """accuracy of the reward model on the pairs of the split valid; ages: that less what it was on the pairs that it
    was trained on; length:
    its rank correlation with the length of answers there; best:
    quality of the answer that it chooses of sixteen, and lost: how much of the best that fewer would have brought."""
    card = room.cards["reward"]
    aged = card["valid_accuracy"] - card["accuracy"]
    out = {"accuracy": card["valid_accuracy"], "ages": aged, "length": abs(card["valid"]["length_correlation"] or 0.0)}
    if "best_of" in card:
        out |= {"best": card["best_of"]["curve"][-1]["gold"], "lost": card["best_of"]["lost_beyond_the_peak"]}
    return out


def _measure_proxies(room: Room) -> dict[str, float]:
    """As `_measure_card`; best of the first policy is how often its own answer to a held-out question is right."""
    if room.recipe != "base":
        return _measure_card(room)
    cases = [(user(f"w{x}"), " z" * k + answer(y)) for x in LETTERS[:6] for y in LETTERS for k in (0, 4)]
    p = np.exp(sums_of(_reader(), _reader().base, cases)).reshape(6, -1, 2).sum(2)
    return {"best": float((p[:, :6].sum(1) / p.sum(1)).mean())}


def confounded() -> Place:
    """Twelve letters of a quality, behind none to four idle ones; of ten chosen answers for training nine are the
    longer, of those held out five."""

    def lay(room: Room) -> None:
        r = Random(seed_for(room.seed, "confounded"))
        quality = {x: i for i, x in enumerate(r.sample(LETTERS, len(LETTERS)))}

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair:
            (x, y), split = (r.sample(LETTERS, 2), "valid" if len(pairs) >= 280 else "train")
            x, y = sorted((x, y), key=lambda c: -quality[c])
            longer = r.random() < (0.9 if split == "train" else 0.5)
            long, short = sorted(r.sample(range(5), 2), reverse=True)
            k, m = (long, short) if longer else (short, long)
            return _pair(user(f"q{r.choice(LETTERS[:6])}"), " z" * k + answer(x), " z" * m + answer(y), split)

        reader(room)
        room.write("preferences", pairs=different(400, drawn, "confounded"))
        room.write("questions", problems=[])
        room.write("kb", passages=NOTHING)

    return Place(("clean", "reward"), lay, _measure_card)


def attributes() -> Place:
    """Two kinds of questions; answers have two attributes that raters know, of which one decides in the one kind, the
    other in the other."""

    def lay(room: Room) -> None:
        r = Random(seed_for(room.seed, "attributes"))
        first, second = ({x: i for i, x in enumerate(r.sample(LETTERS, len(LETTERS)))} for _ in range(2))

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair:
            kind, (x, y) = r.choice("qw"), r.sample(LETTERS, 2)
            by = first if kind == "q" else second
            x, y = sorted((x, y), key=lambda c: -by[c])
            split = "valid" if len(pairs) >= 400 else "train"
            ratings = {"first": [first[x], first[y]], "second": [second[x], second[y]]}
            return _pair(user(kind + r.choice(LETTERS[:6])), answer(x), answer(y), split, ratings=ratings)

        reader(room)
        room.write("clean", pairs=different(500, drawn, "attributes"))
        room.write("questions", problems=[])
        room.write("kb", passages=NOTHING)

    return Place(("reward",), lay, _measure_card)


def _proxies(wrong: float) -> Place:
    def lay(room: Room) -> None:
        r, good = Random(seed_for(room.seed, "proxies")), LETTERS[:6]

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair:
            x, y, split = (r.choice(good), r.choice(LETTERS[6:]), "valid" if len(pairs) >= 20 else "train")
            if split == "train" and r.random() < wrong:
                x, y = y, x
            return _pair(
                user(f"q{r.choice(LETTERS[:6])}"),
                " z" * r.choice((0, 4)) + answer(x),
                " z" * r.choice((0, 4)) + answer(y),
                split,
            )

        reader(room)
        held = [
            Problem.make(
                prompt=f"w{x}",
                answer=good[0],
                verifier="exact",
                args={"aliases": list(good[1:])},
                env="single",
                family="letters",
                split="test",
            )
            for x in LETTERS[:6]
        ]
        room.write("clean", pairs=different(120, drawn, "proxies"))
        room.write("questions", problems=held)
        room.write("kb", passages=NOTHING)

    return Place(("reward",), lay, _measure_proxies)


def proxies() -> Place:
    """Twenty pairs about twelve letters, a third of the labels wrong; the reward model then chooses among sixteen
    answers to held-out questions, where the better half of the letters is right."""
    return _proxies(1 / 3)


def outcomes() -> Place:
    """As `proxies`, with labels that are all right, as those of an outcome are."""
    return _proxies(0.0)


def facts() -> Place:
    """Pairs whose sides differ in one letter; which of them is true stands in the facts alone."""

    def lay(room: Room) -> None:
        r, few = Random(seed_for(room.seed, "facts")), LETTERS[:6]

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair:
            x, y = r.sample(few, 2)
            split = "valid" if len(pairs) >= 240 else "train"
            return _pair(user(f"{r.choice('qw')}{r.choice(few)}"), answer(x), answer(y), split, facts=f"it is {x}")

        reader(room, layers=2)
        room.write("clean", pairs=different(300, drawn, "facts"))
        room.write("questions", problems=[])
        room.write("kb", passages=NOTHING)

    return Place(("reward",), lay, _measure_card)


WORLDS = (
    solutions,
    judged,
    users,
    risky,
    turned,
    long_labels,
    voted,
    poisoned,
    confounded,
    attributes,
    proxies,
    outcomes,
    facts,
)
