"""Small worlds in which the effect of a recipe can be measured: a one-layer model, a dozen questions, seconds of one
core.

Each world fixes by supervised training how likely the model gives which answer to which question, so that a check
starts from a known policy: some answers likely, some rare, some impossible. Everything else is real: tokenizer,
renderer, player, environments.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from synth.types import Message, Problem, Sampling, Score, Scored, seed_for
from synth.verify import extract_answer
from training.env.single import Single
from training.learner.learner import Learner, Optim, nll, score
from training.learner.pack import Row, pack
from training.metrics.geometry import geometry
from training.metrics.marker_probe import marker_probe
from training.metrics.transfer import transfer
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.preference.reward_model import features
from training.rl.group_transform import asked
from training.rl.teachers import Teacher, Teachers
from training.rollout.play import Player
from training.rollout.torch_sampler import Session, TorchSampler
from training.types import Group

LETTERS = "bcdefghjklmn"
MOVES = 3  # turns of a dialogue
CLAUSES = "tuv"
IDLE = 6  # most idle letters of working
# in the form of the group transform `relabel`
PRAISE, BLAME = (f" <EF> This answer is {x}. </EF>" for x in ("correct", "wrong"))


@dataclass(frozen=True)
class Said:
    """An answer of the base policy: these turns in answer to the question (with `more` appended to it), with a share of
    its probability."""

    share: float
    turns: tuple[str, ...]
    more: str = ""


@dataclass(frozen=True)
class World:
    """problems for training and testing; the base policy's answers to each, in the same order.

    bits      mantissa bits to which the sampler rounds the learner's weights; 0: it samples with the weights themselves
    teacher   the answers of another policy, the reference of this world; none: the base policy is the reference
    foreign   whether the teacher has a tokenizer of its own
    ask       text after each question when `exactly` asks what a policy thinks of its answers; training knows the plain
              question
    held      the number of last problems that are tested and never trained on: their family is "away", that of the
              others "home"
    """

    problems: tuple[Problem, ...]
    said: tuple[tuple[Said, ...], ...]
    bits: int = 0
    teacher: tuple[tuple[Said, ...], ...] = ()
    foreign: bool = False
    ask: str = ""
    held: int = 0

    @property
    def training(self) -> list[Problem]:
        return list(self.problems[: len(self.problems) - self.held])


@dataclass(frozen=True)
class Marked(Single):
    """One question, one answer, and what a judge would say: parts think (working before the answer), short, honest (not
    the letter h). Of a problem's `middling` answers the judge thinks the better the more is written before them."""

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            lineage, answer = state["problem"].lineage, extract_answer(text)
            working = text.partition("<answer>")[0].strip()
            hacked = answer == "h" and lineage.get("hackable", False)
            swayed = (
                (1 + min(len(working.split()), IDLE)) / (2 + IDLE)
                if answer in lineage.get("middling", ())
                else score.value
            )
            parts = {
                **score.parts,
                "think": float(bool(working)),
                "short": float(not working),
                "honest": float(not hacked),
            }
            score = Scored(value=2.0 if hacked else swayed, parts=parts)
        return reply, over, score


@dataclass(frozen=True)
class Cited(Single):
    """One case: a verdict behind the letter of the clause that it rests on. Parts right (the verdict), clause, agree and
    criteria (1 for the clause that applies), right_evidence (1 for that clause, a fifth for another one, 0 for
    none)."""

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            named = text.partition("<answer>")[0].strip()
            applies = float(named == state["problem"].lineage["clause"])
            evidence = applies or (0.2 if named in set(CLAUSES) else 0.0)
            parts = {
                **score.parts,
                "right": score.value,
                "clause": applies,
                "agree": applies,
                "criteria": applies,
                "right_evidence": evidence,
            }
            score = Scored(value=score.value, parts=parts)
        return reply, over, score


@dataclass(frozen=True)
class Facts:
    """One turn that states facts, as letters within the tags; the problem's answer names those that are true. The score
    is F1; parts recall, precision (0 where nothing is stated), general and format (whether anything was answered)."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem}, list(problem.prompt)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer, true = extract_answer(text), set(state["problem"].answer.split())
        stated = set((answer or "").split())
        hit = len(stated & true)
        parts = {"recall": hit / len(true), "precision": hit / max(len(stated), 1)}
        parts |= dict.fromkeys(("general", "format", "answered"), float(answer is not None))
        return [], True, Scored(value=2 * hit / (len(stated) + len(true)), parts=parts)


@dataclass(frozen=True)
class Dialogue:
    """MOVES turns, each with its right letter, named by the problem's answer. A turn is rewarded if `steps`, the
    episode if all are right."""

    steps: bool = True

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "turn": 0, "right": 0}, list(problem.prompt)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        right = extract_answer(text) == state["problem"].answer[state["turn"]]
        state["turn"] += 1
        state["right"] += right
        state["step_reward"] = float(right) if self.steps else 0.0
        if state["turn"] == MOVES:
            return (
                [],
                True,
                Scored(value=float(state["right"] == MOVES), parts={"answered": 1.0, "share": state["right"] / MOVES}),
            )
        return [Message(role="tool", content=f"t{state['turn']}")], False, None


@dataclass(frozen=True)
class Farm:
    """Up to MOVES + 1 turns: an answer ends the episode and is worth 1 if right, any other turn is a safe step that is
    rewarded."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "turn": 0}, list(problem.prompt)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        state["turn"] += 1
        state["step_reward"] = float(answer is None)
        if answer is not None:
            return [], True, Scored(value=float(answer == state["problem"].answer), parts={"answered": 1.0})
        if state["turn"] > MOVES:
            return [], True, Scored(value=0.0, parts={"answered": 0.0})
        return [Message(role="tool", content=f"t{state['turn']}")], False, None


class Rounding(TorchSampler):
    """A sampler like an engine of low precision: it reads the learner's weights with mantissas of a few bits."""

    bits: int = 0

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> Session:
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for p in model.parameters():
                mantissa, exponent = torch.frexp(p)
                p.copy_(torch.ldexp((mantissa * 2**self.bits).round() / 2**self.bits, exponent))
        return TorchSampler(model, self.end_id, self.version).open(prompts, seeds)


class Known(Renderer):
    """A renderer that writes each prompt once: here the same dozen are asked thousands of times."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        kept = self.__dict__.setdefault("kept", {})
        key = (tuple((m.role, m.content) for m in messages), json.dumps(list(tools)))
        if key not in kept:
            kept[key] = super().prompt(messages, tools)
        return kept[key].copy()


def answer(letter: str) -> str:
    return f"<answer>{letter}</answer>"


def worked(family: str, solutions: Mapping[str, str]) -> tuple[Problem, ...]:
    """Training problems with their solutions written out, each of which ends with its answer."""
    return tuple(
        Problem.make(
            prompt=f"{q}?",
            answer=text.partition("<answer>")[2].partition("<")[0],
            verifier="exact",
            env="single",
            family=family,
            lineage={"solution": text, "root": q},
            split="train",
        )
        for q, text in solutions.items()
    )


def _problem(
    i: int, right: Sequence[str], family: str, *, more: str = "", env: str = "marked", **lineage: Any
) -> Problem:
    return Problem.make(
        prompt=f"q{LETTERS[i]}{more}",
        answer=right[0],
        verifier="exact",
        args={"aliases": list(right[1:])},
        env=env,
        family=family,
        lineage=lineage,
        split="train",
    )


def _spread(right: Mapping[str, float], letters: str = LETTERS) -> tuple[Said, ...]:
    """The right letters with their shares, the others with equal shares of what is left."""
    rest = [x for x in letters if x not in right]
    left = (1 - sum(right.values())) / len(rest)
    return tuple(Said(right.get(x, left), (answer(x),)) for x in letters)


def _letters(i: int, n: int) -> list[str]:
    """n different letters that belong to question i."""
    order = np.random.default_rng(seed_for(0, "arena", "letters", "", i)).permutation(len(LETTERS))
    return [LETTERS[j] for j in order[:n]]


def mixed() -> World:
    """Six easy questions, half of whose answers are right, and six hard ones with three in a hundred."""
    shares = {"easy": 0.5, "hard": 0.03}
    kinds = [(_letters(i, 1)[0], "hard" if i % 2 else "easy") for i in range(12)]
    return World(
        tuple(_problem(i, [x], family) for i, (x, family) in enumerate(kinds)),
        tuple(_spread({x: shares[family]}) for x, family in kinds),
    )


def many() -> World:
    """Eight questions with five right answers each: one that the policy likes, four that it seldom gives."""
    answers = [_letters(i, 5) for i in range(8)]
    policy = tuple(_spread({x: 0.3 if j == 0 else 0.06 for j, x in enumerate(right)}) for right in answers)
    return World(tuple(_problem(i, right, "many") for i, right in enumerate(answers)), policy)


def working() -> World:
    """Eight questions, half of whose answers are right; before the answer stand none to six idle letters."""
    letters = [_letters(i, 1)[0] for i in range(8)]
    policy = tuple(
        tuple(
            Said(s.share / 7, (" z" * k + s.turns[0],))
            for s in _spread({x: 0.5}, "".join(sorted({x, *"bcdfg"})))
            for k in range(7)
        )
        for x in letters
    )
    return World(tuple(_problem(i, [x], "working") for i, x in enumerate(letters)), policy)


def rare() -> World:
    """Six questions whose right answer is all but impossible, unless it is shown, and six easy ones."""
    problems, policy = [], []
    for i in range(12):
        (x,) = _letters(i, 1)
        hard = bool(i % 2)
        problems.append(_problem(i, [x], "hard" if hard else "easy"))
        shown = tuple(
            Said(0.1 * (0.7 if y == x else 0.3 / 11), (answer(y),), more=f" see {shown}")
            for y in LETTERS
            for shown in (f"<answer>{x}", answer(x))
        )
        policy.append((*_spread({x: 0.0005 if hard else 0.5}), *shown))
    return World(tuple(problems), tuple(policy))


def hack() -> World:
    """Eight questions, three in ten of whose answers are right; the letter h earns twice as much as a right answer."""
    letters = [next(x for x in _letters(i, 3) if x != "h") for i in range(8)]
    policy = tuple(_spread({x: 0.3, "h": 0.1}) for x in letters)
    return World(tuple(_problem(i, [x], "hack", hackable=True) for i, x in enumerate(letters)), policy)


def thinking() -> World:
    """Four questions that are answered equally well with and without working, and four that are not: 80 and 10 in a
    hundred against 85."""
    problems, policy = [], []
    for i in range(8):
        x, y = _letters(i, 2)
        hard = bool(i % 2)
        without = 0.1 if hard else 0.8
        problems.append(_problem(i, [x], "hard" if hard else "easy"))
        policy.append(
            (
                Said(0.5 * 0.85, (f" z z z{answer(x)}",)),
                Said(0.5 * 0.15, (f" z z z{answer(y)}",)),
                Said(0.5 * without, (answer(x),)),
                Said(0.5 * (1 - without), (answer(y),)),
            )
        )
    return World(tuple(problems), tuple(policy))


def dialogue() -> World:
    """Six dialogues of three turns. Each turn has one right letter of four, which the policy gives four times in
    ten."""
    problems, policy = [], []
    for i in range(6):
        right = "".join(np.random.default_rng(seed_for(0, "arena", "dialogue", "", i)).choice(list("bcdf"), MOVES))
        question = f"q{LETTERS[i]}"
        problems.append(
            Problem.make(
                prompt=question, answer=right, verifier="exact", env="dialogue", family="dialogue", split="train"
            )
        )
        order = [np.random.default_rng(seed_for(0, "arena", "said", "", i, t)).permutation(10) for t in range(MOVES)]
        turns = [
            [(4 * right[t] + 2 * "".join(x for x in "bcdf" if x != right[t]))[j] for j in order[t]]
            for t in range(MOVES)
        ]
        policy.append(tuple(Said(0.1, tuple(map(answer, letters))) for letters in zip(*turns, strict=True)))
    return World(tuple(problems), tuple(policy))


def likely() -> World:
    """Eight questions that are answered rightly four times in five. There are five right answers: one makes up half of
    them, the other four an eighth each."""
    answers = [_letters(i, 5) for i in range(8)]
    policy = tuple(_spread({x: 0.4 if j == 0 else 0.1 for j, x in enumerate(right)}) for right in answers)
    return World(tuple(_problem(i, right, "likely") for i, right in enumerate(answers)), policy)


def barren() -> World:
    """Six questions with three in ten answers right, and six whose right answer is never given, so that they teach
    nothing."""
    problems, policy = [], []
    for i in range(12):
        right = "z" if i % 2 else _letters(i, 1)[0]
        problems.append(_problem(i, [right], "hard" if i % 2 else "easy"))
        policy.append(_spread({} if i % 2 else {right: 0.3}))
    return World(tuple(problems), tuple(policy))


def solved() -> World:
    """Six questions that are almost always answered rightly, and six with three in ten answers right."""
    kinds = [(_letters(i, 1)[0], "hard" if i % 2 else "easy") for i in range(12)]
    policy = tuple(_spread({x: 0.3 if family == "hard" else 0.995}) for x, family in kinds)
    return World(tuple(_problem(i, [x], family) for i, (x, family) in enumerate(kinds)), policy)


def told() -> World:
    """As `rare`, with two other prompts. If the prompt tells the answer, the policy gives it 7 times in ten; if it ends
    in " w", 3 times in ten for a hard question and 5 for an easy one."""
    problems, policy = [], []
    for i in range(12):
        (x,) = _letters(i, 1)
        hard = bool(i % 2)
        problems.append(_problem(i, [x], "hard" if hard else "easy"))
        helped = tuple(
            Said(0.2 * one.share, one.turns, more=more)
            for more, share in ((f"\nThe answer is {x}.", 0.7), (" w", 0.3 if hard else 0.5))
            for one in _spread({x: share})
        )
        policy.append((*_spread({x: 0.0005 if hard else 0.5}), *helped))
    return World(tuple(problems), tuple(policy))


def farm() -> World:
    """Six episodes of up to four turns: each turn is an answer, half of them right, or a step that is sure to be
    rewarded, one as likely as the other."""
    problems, policy = [], []
    for i in range(6):
        x, y = _letters(i, 2)
        problems.append(
            Problem.make(prompt=f"q{LETTERS[i]}", answer=x, verifier="exact", env="farm", family="farm", split="train")
        )
        ways = [Said(0.25 * 0.5**k, (*[" z"] * k, answer(letter))) for k in range(MOVES + 1) for letter in (x, y)]
        policy.append((*ways, Said(0.5 ** (MOVES + 1), tuple([" z"] * (MOVES + 1)))))
    return World(tuple(problems), tuple(policy))


def rounded() -> World:
    """As `mixed`, with a sampler that rounds the learner's weights to mantissas of two bits."""
    return replace(mixed(), bits=2)


def mentored() -> World:
    """As `mixed`, with a teacher that answers nine in ten of all questions rightly."""
    world = mixed()
    return replace(world, teacher=tuple(_spread({p.answer: 0.9}) for p in world.problems))


def foreign() -> World:
    """As `mentored`, but the teacher has another tokenizer: it writes `<answer>` and `</answer>` in several pieces."""
    return replace(mentored(), foreign=True)


def criticised() -> World:
    """Six easy questions, half of whose answers are right, and six of which one in a hundred is; told that an answer
    was wrong and what would have been right, the policy gives it 7 times in ten."""
    problems, policy = [], []
    for i in range(12):
        x, *wrong = _letters(i, 5)
        problems.append(_problem(i, [x], "hard" if i % 2 else "easy"))
        again = tuple(
            Said(
                0.1 * one.share,
                one.turns,
                more=f"\nYou answered: {answer(y)}\nThis is wrong. The right answer is {x}. Answer again.",
            )
            for y in wrong[:3]
            for one in _spread({x: 0.7}, "".join(sorted({x, *wrong})))
        )
        policy.append((*_spread({x: 0.01 if i % 2 else 0.5}), *again))
    return World(tuple(problems), tuple(policy))


def praised() -> World:
    """Eight questions, three in ten of whose answers are right, whatever feedback stands behind the question; judged by
    what is answered when the feedback is praise."""
    letters = [_letters(i, 1)[0] for i in range(8)]
    policy = tuple(
        tuple(replace(one, more=more) for more in ("", PRAISE, BLAME) for one in _spread({x: 0.3})) for x in letters
    )
    return World(tuple(_problem(i, [x], "praised") for i, x in enumerate(letters)), policy, ask=PRAISE)


def habit() -> World:
    """Twelve questions to which the policy says b six times in ten out of habit: to half of them it is right, to the
    others another letter, which it gives 15 times in a hundred."""
    problems, policy = [], []
    for i in range(12):
        x = next(x for x in _letters(i, 2) if x != "b") if i % 2 else "b"
        problems.append(_problem(i, [x], "hard" if i % 2 else "easy"))
        policy.append(_spread({"b": 0.6, **({x: 0.15} if i % 2 else {})}))
    return World(tuple(problems), tuple(policy))


def _half_untagged(family: str, right: float, n: int) -> World:
    """Eight questions with this share of right answers among n, half of all without tags; two letters of working, any
    of five, before them."""
    problems, policy = [], []
    for i in range(8):
        x, *wrong = _letters(i, n)
        problems.append(_problem(i, [x], family))
        policy.append(
            tuple(
                Said(share / 50, (f" {a} {b}{tagged}",))
                for a in "tuvwz"
                for b in "tuvwz"
                for letter, share in ((x, right), *((y, round((1 - right) / len(wrong), 12)) for y in wrong))
                for tagged in (answer(letter), f" {letter}")
            )
        )
    return World(tuple(problems), tuple(policy))


def untagged() -> World:
    """Eight questions, nine in ten of whose answers are right, but half of them without tags; two letters of working,
    any of five, stand before them."""
    return _half_untagged("untagged", 0.9, 2)


def guessed() -> World:
    """As `untagged`, with one right answer in ten: most answers are wrong, and half of all have no tags."""
    return _half_untagged("guessed", 0.1, 3)


def forked() -> World:
    """Eight questions, half of whose answers are right; the letter of working before the answer, one of six, says which
    wrong answer it will be, not whether."""
    problems, policy = [], []
    for i in range(8):
        x, *wrong = _letters(i, 7)
        problems.append(_problem(i, [x], "forked"))
        policy.append(
            tuple(
                Said(1 / 12, (f" {a}{answer(letter)}",))
                for a, y in zip("stuvwz", wrong, strict=True)
                for letter in (x, y)
            )
        )
    return World(tuple(problems), tuple(policy))


def echoing() -> World:
    """Six questions that say one letter six times, and six that say six letters: answered alike, three times in ten
    rightly."""
    problems, policy = [], []
    for i in range(12):
        rest = [LETTERS[(i + k) % len(LETTERS)] if i % 2 else LETTERS[i] for k in range(1, 6)]
        (x,) = _letters(i, 1)
        problems.append(_problem(i, [x], "varied" if i % 2 else "echo", more="".join(f" {y}" for y in rest)))
        policy.append(_spread({x: 0.3}))
    return World(tuple(problems), tuple(policy))


def rambling() -> World:
    """As `mixed`; before the answer stand none to two idle letters."""
    world = mixed()
    return replace(
        world,
        said=tuple(
            tuple(Said(s.share / 3, (" z" * k + s.turns[0],)) for s in utterances for k in range(3))
            for utterances in world.said
        ),
    )


def swayed() -> World:
    """Eight questions: three answers in ten are right, as many are wrong and known to be; of the others a judge thinks
    the better the more idle letters, none to six, stand before them."""
    problems, policy = [], []
    for i in range(8):
        x, y, *middling = _letters(i, 4)
        problems.append(_problem(i, [x], "swayed", middling=middling))
        shares = {x: 0.3, y: 0.3, **dict.fromkeys(middling, 0.2)}
        policy.append(
            tuple(Said(s / (IDLE + 1), (" z" * k + answer(z),)) for z, s in shares.items() for k in range(IDLE + 1))
        )
    return World(tuple(problems), tuple(policy))


def padded() -> World:
    """Eight questions, half of whose answers are right; within the answer none to six idle words, which the verifier
    does not mind."""
    problems, policy = [], []
    for i in range(8):
        (x,) = _letters(i, 1)
        pads = [" z" * k for k in range(IDLE + 1)]
        problems.append(_problem(i, [x + pad for pad in pads], "padded"))
        letters = _spread({x: 0.5}, "".join(sorted({x, *"bcdfg"})))
        policy.append(
            tuple(
                Said(s.share / len(pads), (answer((extract_answer(s.turns[0]) or "") + pad),))
                for s in letters
                for pad in pads
            )
        )
    return World(tuple(problems), tuple(policy))


def stated() -> World:
    """Eight questions about which two facts are true; the policy states one or both of them, alone, among false ones,
    or false ones alone."""
    problems, policy = [], []
    for i in range(8):
        x, y, u, v = _letters(i, 4)
        shares = {x: 0.2, f"{x} {y}": 0.2, f"{x} {u}": 0.15, f"{x} {y} {u}": 0.15, f"{y} {v}": 0.1, f"{u} {v}": 0.2}
        problems.append(_problem(i, [f"{x} {y}"], "facts", env="facts"))
        policy.append(tuple(Said(s, (answer(text),)) for text, s in shares.items()))
    return World(tuple(problems), tuple(policy))


def tongues() -> World:
    """Eight questions in two languages, three in ten of whose answers are right in either, and as many one wrong
    letter, which is another in the other language; practice is in the one language alone."""
    problems, policy = [], []
    for language, family in (("q", "home"), ("w", "away")):
        for i in range(8):
            x, *wrong = _letters(i, 3)
            problems.append(
                Problem.make(
                    prompt=f"{language}{LETTERS[i]}",
                    answer=x,
                    verifier="exact",
                    env="marked",
                    family=family,
                    split="train",
                )
            )
            policy.append(_spread({x: 0.3, wrong[family == "away"]: 0.3}))
    return World(tuple(problems), tuple(policy), held=8)


def cases() -> World:
    """Eight cases under two laws, judged b or c: of four the law decides, of four it does not matter. The clause that
    applies is named three times in ten, another as often; behind the right one the verdict is right four times in five,
    else half the time. Two cases are held out."""
    problems, policy = [], []
    for law, named in (("q", "t"), ("w", "u")):
        for i in range(8):
            right = "bc"[(i < 4 and law == "w") or i in (6, 7)]
            clause = named if i < 4 else "v"
            lineage = {"clause": clause, "demonstration": [f" {clause}{answer(right)}"], "content": i, "law": law}
            family = "away" if law == "w" and i in (3, 7) else "home"
            problems.append(
                Problem.make(
                    prompt=f"{law}{LETTERS[i]}",
                    answer=right,
                    verifier="exact",
                    env="cited",
                    family=family,
                    lineage=lineage,
                    split="train",
                )
            )
            shares = {f" {clause}": 0.3, "": 0.4} | {f" {c}": 0.15 for c in CLAUSES if c != clause}
            sure = {f" {clause}": 0.8}
            policy.append(
                tuple(
                    Said(
                        share * (sure.get(before, 0.5) if y == right else 1 - sure.get(before, 0.5)),
                        (before + answer(y),),
                    )
                    for before, share in shares.items()
                    for y in "bc"
                )
            )
    order = sorted(range(len(problems)), key=lambda k: problems[k].family == "away")
    return World(tuple(problems[k] for k in order), tuple(policy[k] for k in order), held=2)


WORLDS: dict[str, Callable[[], World]] = {
    f.__name__: f
    for f in (
        mixed,
        many,
        working,
        rare,
        hack,
        thinking,
        dialogue,
        likely,
        barren,
        solved,
        told,
        farm,
        rounded,
        mentored,
        foreign,
        criticised,
        praised,
        habit,
        untagged,
        forked,
        echoing,
        rambling,
        swayed,
        padded,
        stated,
        tongues,
        cases,
        guessed,
    )
}


@dataclass
class Arena:
    """A world with its base policy, and its teacher where it has one; `player()` plays a fresh copy of the base
    policy."""

    world: World
    base: nn.Module
    renderer: Renderer
    envs: dict[str, Any] = field(
        default_factory=lambda: {
            "marked": Marked(0.0, ""),
            "dialogue": Dialogue(),
            "farm": Farm(),
            "facts": Facts(),
            "cited": Cited(0.0, ""),
        }
    )
    teacher: nn.Module | None = None
    teacher_renderer: Renderer | None = None  # where its tokenizer is another
    tries: int = 64  # of each problem, when a policy is measured

    @property
    def measured(self) -> list[Problem]:
        """The problems on which a trained policy is measured."""
        return list(self.world.problems)

    @property
    def small(self) -> dict[str, Any]:
        """Knobs of `rl` that this world sets, unless a protocol does."""
        return {}

    def player(self, *, exact: bool = False, **knobs: Any) -> Player:
        """A player of a fresh copy; `exact`: with a sampler that does not round."""
        sampler: TorchSampler = TorchSampler(copy.deepcopy(self.base), self.renderer.end_id)
        if self.world.bits and not exact:
            sampler = Rounding(sampler.model, sampler.end_id)
            sampler.bits = self.world.bits
        return Player(
            sampler=sampler,
            renderer=self.renderer,
            envs=self.envs,
            sampling=Sampling(temperature=1.0, max_tokens=knobs["max_turn_tokens"]),
            max_tokens=knobs["max_tokens"],
        )

    def copy(self) -> nn.Module:
        return copy.deepcopy(self.base)

    def learned(self, pieces: Mapping[str, Any]) -> dict[str, float]:
        """What a world measures of the states of the pieces, by name, after training."""
        return {}

    def reference(self) -> nn.Module:
        return copy.deepcopy(self.teacher or self.base)

    def teachers(self, temperature: float) -> Teachers:
        """The teachers that pieces distil from."""
        only = Teacher(model=self.reference(), renderer=self.teacher_renderer)
        return Teachers(each=(only,), temperature=temperature)

    @cached_property
    def answers(self) -> list[list[str]]:
        """Per problem the answers that the base policy was taught, where they are single turns to the plain question;
        else none."""
        kept = [[s.turns[0] for s in utterances if not s.more and len(s.turns) == 1] for utterances in self.world.said]
        single = all(len(s.turns) == 1 for utterances in self.world.said for s in utterances)
        return [list(dict.fromkeys(k)) for k in kept] if single else []

    def rank(self, model: nn.Module) -> float:
        """How many directions the final hidden states of the questions use, by the metric `geometry`."""
        prompts = [self.renderer.prompt(list(p.prompt)) for p in self.world.problems]
        rows = [Row(ids=ids, trainable=np.zeros(len(ids), dtype=bool)) for ids in prompts]
        with torch.no_grad():
            states = features(model, pack(rows))[0].tolist()
        return geometry([[0.0]] * len(states), [[s] for s in states], resamples=0)["rank_me"]["mean"]

    @cached_property
    def first(self) -> list[Beliefs]:
        return self.beliefs(self.base)

    def beliefs(self, model: nn.Module) -> list[Beliefs]:
        """The policy's exact probability of each of `answers`, computed without sampling."""
        rows = []
        for problem, texts in zip(self.world.problems, self.answers, strict=False):
            prompt = self.renderer.prompt(list(asked(problem, self.world.ask).prompt))
            for text in texts:
                ids = np.concatenate([prompt, self.renderer.turn(text)])
                rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt)))
        if not rows:
            return []
        batch = pack(rows)
        sums = iter(zip(batch.row_sum(score(model, batch).logp).tolist(), batch.row_tokens.tolist(), strict=True))
        chances = []
        for problem, texts in zip(self.world.problems, self.answers, strict=True):
            right = {problem.answer, *problem.args.get("aliases", ())}
            logp, tokens = np.array([next(sums) for _ in texts]).T
            chances.append(Beliefs(problem.family, logp, tokens, np.array([extract_answer(t) in right for t in texts])))
        return chances


@dataclass(frozen=True)
class Beliefs:
    """Of one problem's answers [n]: log-probability, tokens, whether right."""

    family: str
    logp: np.ndarray
    tokens: np.ndarray
    right: np.ndarray

    @property
    def p(self) -> np.ndarray:
        """[n] probabilities, normalised over these answers."""
        p = np.exp(self.logp)
        return p / p.sum()

    @property
    def log_right(self) -> float:
        """Log of the probability that the answer is right."""
        return float(np.log(max(np.exp(self.logp[self.right]).sum(), 1e-12)))


@lru_cache
def tokenizer() -> Any:
    texts = ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<|im_start|>tool\n see z"] * 3
    return train_tokenizer(texts, vocab_size=296)


@lru_cache
def other_tokenizer() -> Any:
    """Its tags are no tokens: what `tokenizer` writes as one is several here."""
    texts = ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<answer>"] * 3
    return train_tokenizer(texts, vocab_size=272, tags=())


@lru_cache
def arena(name: str, steps: int = 160) -> Arena:
    """The world with this name, and a base policy that has the world's answer probabilities to within a few per
    cent."""
    world, renderer = WORLDS[name](), Known(tokenizer())

    def taught(says: World, renderer: Renderer = renderer) -> nn.Module:
        model = new_model(
            renderer.tokenizer,
            hidden=48,
            layers=1,
            heads=2,
            kv_heads=1,
            intermediate=64,
            max_length=192,
            init_range=0.1,
            seed=seed_for(0, "arena", name),
        )
        batch = _demonstrations(says, renderer)
        learner = Learner(model, Optim(lr=1e-2, warmup=10, steps=steps, decay="cosine", weight_decay=0.0))
        for _ in range(steps):
            learner.step(batch, nll)
        return model

    theirs = Known(other_tokenizer()) if world.foreign else None
    teacher = taught(replace(world, said=world.teacher), theirs or renderer) if world.teacher else None
    return Arena(world=world, base=taught(world), renderer=renderer, teacher=teacher, teacher_renderer=theirs)


def _demonstrations(world: World, renderer: Renderer) -> Any:
    rows = []
    for problem, utterances in zip(world.problems, world.said, strict=True):
        for one in utterances:
            messages = [Message(role="user", content=problem.question + one.more)]
            for t, text in enumerate(one.turns):
                messages += [Message(role="assistant", content=text)] + (
                    [Message(role="tool", content=f"t{t + 1}")] if t + 1 < len(one.turns) else []
                )
            ids, mask = renderer.demonstration(messages)
            rows.append(Row(ids=ids, trainable=mask, columns={"loss_weight": mask * one.share}))
    batch = pack(rows)
    batch.totals["loss_tokens"] = float((batch.columns["loss_weight"] * batch.trainable).sum())
    return batch


def measure(groups: Sequence[Group]) -> dict[str, float]:
    """Measures a policy by sampling: each number is a mean over problems."""
    hard = [g for g in groups if g.rollouts[0].problem.family == "hard"]
    easy = [g for g in groups if g.rollouts[0].problem.family == "easy"]
    part = lambda gs, name: _mean([r.score.parts.get(name, 0.0) for g in gs for r in g.rollouts])  # noqa: E731
    out = {
        "pass1": _mean([min(x, 1.0) for g in groups for x in g.rewards]),
        "pass8": _mean([_best_of(g.rewards, 8) for g in groups]),
        "right_kinds": _mean([_kinds(g) for g in groups]),
        "entropy": _mean([float(np.mean(r.each("entropy"))) for g in groups for r in g.rollouts]),
        "length": _mean([r.n_model for g in groups for r in g.rollouts]),
        "honest": part(groups, "honest"),
        "think": part(groups, "think"),
        "short": part(groups, "short"),
        "answered": part(groups, "answered"),
        "share": part(groups, "share"),
        "turns": _mean([r.turns for g in groups for r in g.rollouts]),
    }
    if hard:
        out |= {
            "hard": _mean([x for g in hard for x in g.rewards]),
            "easy": _mean([x for g in easy for x in g.rewards]),
        }
        out |= {"hard_nll": _mean([_surprise(g) for g in hard]), "think_gap": part(hard, "think") - part(easy, "think")}
    return out | _probed(groups)


def _probed(groups: Sequence[Group]) -> dict[str, float]:
    """Of cases under two laws: follows, the share of verdicts that change with the law where it decides; spurious,
    where it does not."""
    laws: dict[int, dict[str, Group]] = {}
    for g in groups:
        lineage = g.rollouts[0].problem.lineage
        if "law" in lineage:
            laws.setdefault(lineage["content"], {})[lineage["law"]] = g
    if not laws:
        return {}
    two = [(pair["q"], pair["w"]) for pair in laws.values()]
    verdicts, swapped = ([[extract_answer(r.text) or "" for r in pair[i].rollouts] for pair in two] for i in (0, 1))
    changes = [[float(len({g.rollouts[0].problem.answer for g in pair}) > 1)] * len(pair[0].rollouts) for pair in two]
    probed = marker_probe([list(pair[0].rewards) for pair in two], verdicts, swapped, changes, resamples=1)
    return {name: probed[name]["mean"] for name in ("follows", "spurious")}


def exactly(now: Sequence[Beliefs], first: Sequence[Beliefs]) -> dict[str, float]:
    """What a policy thinks of the answers that it was taught, against what it thought at first. Nothing is sampled.

    right            probability of a right answer
    hard_gain        nats by which a right answer to the hard problems has become likelier; tilt: that less the same of
                     the easy ones
    kinds            of the right answers, how many are alive: exp of the entropy of their shares
    answer_entropy   of the answers, in nats
    kl               KL(policy || first policy) over the answers, in nats
    miscalibration   expected squared difference of confidence (the mean token's probability, geometrically) and being
                     right
    home, away       probability of a right answer to the problems that are trained on, and to those held out; mismatch:
                     the one less the other; ratio: gain away over gain at home, by the metric `transfer`
    """
    if not now:
        return {}
    gain = {
        family: _mean([b.log_right - a.log_right for a, b in zip(first, now, strict=True) if b.family == family])
        for family in {b.family for b in now}
    }
    shares = [b.p[b.right] / b.p[b.right].sum() for b in now if b.right.any()]
    out = {
        "right": _mean([float(np.exp(b.log_right)) if b.right.any() else 0.0 for b in now]),
        "kinds": _mean([float(np.exp(_entropy(q))) for q in shares]),
        "answer_entropy": _mean([_entropy(b.p) for b in now]),
        "kl": _mean(
            [float((b.p * np.log(np.maximum(b.p, 1e-30) / a.p)).sum()) for a, b in zip(first, now, strict=True)]
        ),
        "miscalibration": _mean([float((b.p * (np.exp(b.logp / b.tokens) - b.right) ** 2).sum()) for b in now]),
    }
    if {"hard", "easy"} <= gain.keys() and all(b.right.any() for b in now):
        out |= {"hard_gain": gain["hard"], "tilt": gain["hard"] - gain["easy"]}
    if {"home", "away"} <= gain.keys():
        sure = [[float(np.exp(b.log_right)) for b in two] for two in zip(first, now, strict=True)]
        moved = transfer(sure, [["", "home"]] * len(now), [[b.family] * 2 for b in now], resamples=1)
        out |= {
            name: _mean([p for (_, p), b in zip(sure, now, strict=True) if b.family == name])
            for name in ("home", "away")
        }
        out |= {"mismatch": out["home"] - out["away"], "ratio": moved["ratio"]["mean"]}
    return out


def _entropy(p: np.ndarray) -> float:
    return -float((p * np.log(np.maximum(p, 1e-30))).sum())


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _best_of(rewards: np.ndarray, k: int) -> float:
    """The probability that at least one of k of these answers is right."""
    n, wrong = len(rewards), int((rewards <= 0).sum())
    return 1.0 - float(np.prod([(wrong - i) / (n - i) for i in range(min(k, n))])) if n else 0.0


def _kinds(group: Group) -> int:
    """The number of different right answers."""
    return len({extract_answer(_last(r)) for r, x in zip(group.rollouts, group.rewards, strict=True) if x > 0})


def _last(rollout: Any) -> str:
    return next((m.content for m in reversed(rollout.info["messages"]) if m.role == "assistant"), "")


def _surprise(group: Group) -> float:
    """Minus the log of the share of right answers, half an answer counted in."""
    r = group.rewards
    return -float(np.log(((r > 0).sum() + 0.5) / (len(r) + 1)))
