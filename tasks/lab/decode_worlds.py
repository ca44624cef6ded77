"""Small worlds for decoders: a model of two layers that has learned to answer in a planted way, a user or judge who wants
something of it, and preference pairs that show what.

A protocol compares the first of a recipe's `evaluate.decoders` with another: `against_set: {evaluate: {decoders: [...]}}`
names the control, `base` is one plain draw. A token is a number, its text a letter (STOP is a full stop, BAD a bad word). The model is
taught anew for each seed. What is measured of QUESTIONS answers, by `measure`:

    wanted          mean of what the world wants of an answer, from 0 to 1 where its docstring says no other
    surprise        nats per token of the answers under the model as it was taught: what steering has cost in fluency
    forward_tokens  of all models, an answer
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from torch import nn

from synth.types import Sampling, seed_for
from synth.verify.rewriting import fault, words
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind, bind_all
from training.decode import Ask, Engine, Example
from training.decode.best_first import stated
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import new_model
from training.rollout.torch_sampler import TorchSampler

QUESTIONS, TAUGHT, IDS, END, PROMPT = 160, 500, 24, 2, 3
LOW, HIGH, BAD, STOP = range(3, 9), range(10, 16), 9, 16
BETTER, WORSE = 1, 0  # what a judge says behind an answer
_WORDS = [chr(97 + i) if i < 26 else f"w{i}" for i in range(256)]  # a head may have more rows than the vocabulary
_WORDS[STOP], _WORDS[BAD] = ".", "kill"
Rng = np.random.Generator


class _Vocabulary:
    """In the place of a tokenizer: IDS tokens, of which END ends a turn."""

    eos_token_id, pad_token_id = END, 0

    def __len__(self) -> int:
        return IDS


@dataclass(frozen=True)
class Tongue:
    """What a model has learned to say, and what is wanted of it.

    answer  (rng, prompt) -> ids of an answer, END behind it
    pair    (rng, prompt, taste) -> the better and the worse answer
    wanted  (answer without END, prompt, taste) -> what it is worth
    reward  the same as the reward model sees it, or a judge who errs: (rng of the answer, worth) -> reward; None: there
            is no reward model
    pairs   how many
    tokens  most of an answer
    said    text of an answer -> its result, by which answers are compared
    asked   prompt -> the question in words; None: in letters
    lesson  (rng, prompt) -> what is taught behind a prompt, and how many of its ids are only read; None: an answer
    reads   text -> the ids that the model reads of it; None: words mean nothing to it
    rated   answer -> what raters say of it, by dimension; None: nobody rates
    steps   in which the model is taught, at most
    until   nats per taught token, of the mean of twenty steps, at which teaching ends; 0: after all steps
    spelt   letters of an answer -> its text
    budget  forward tokens of an answer, of all models; 0: no bound
    judged  steps in which a copy of the model learns from the pairs to say whether an answer is of the better ones: the reward is
            the log-odds of that; 0: `reward` says
    """

    answer: Callable[[Rng, np.ndarray], np.ndarray]
    pair: Callable[[Rng, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    wanted: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    reward: Callable[[Rng, float], float] | None = None
    pairs: int = 60
    tokens: int = 10
    said: Callable[[str], str] = str
    asked: Callable[[np.ndarray], str] | None = None
    lesson: Callable[[Rng, np.ndarray], tuple[np.ndarray, int]] | None = None
    reads: Callable[[str], np.ndarray] | None = None
    rated: Callable[[np.ndarray], dict[str, float]] | None = None
    steps: int = TAUGHT
    until: float = 0.0
    spelt: Callable[[str], str] = str
    budget: int = 0
    judged: int = 0


def _prompt(rng: Rng) -> np.ndarray:
    return rng.integers(3, 16, PROMPT)


@lru_cache(maxsize=2)
def _taught(tongue: Tongue, seed: int) -> nn.Module:
    rng = np.random.default_rng(seed_for(seed, "decode worlds"))
    model = new_model(
        _Vocabulary(),  # type: ignore[arg-type]
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=48,
        max_length=64,
        init_range=0.1,
        seed=seed_for(seed, "decode worlds", "model"),
    )
    learner = Learner(model, Optim(lr=5e-3, warmup=5, steps=tongue.steps))
    losses: list[float] = []
    for _ in range(tongue.steps):
        if len(losses) >= 20 and np.mean(losses[-20:]) < tongue.until:
            break
        rows = []
        for _ in range(24):
            prompt = _prompt(rng)
            reply, read = tongue.lesson(rng, prompt) if tongue.lesson else (tongue.answer(rng, prompt), 0)
            ids = np.concatenate([prompt, reply])
            rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= PROMPT + read))
        losses.append(learner.step(pack(rows), nll)["loss"])
    return model


def _judge(tongue: Tongue, model: nn.Module, pairs: Sequence[Example], seed: int) -> nn.Module:
    """What learns behind each side of the pairs which one it is: BETTER or WORSE."""
    judge = deepcopy(model)
    whole = [
        np.concatenate([pair.prompt, side, [verdict]])
        for pair in pairs
        for side, verdict in ((pair.chosen, BETTER), (pair.rejected, WORSE))
    ]
    rows = [Row(ids=ids, trainable=np.arange(len(ids)) == len(ids) - 1) for ids in whole]
    rng = np.random.default_rng(seed_for(seed, "decode worlds", "judge"))
    learner = Learner(judge, Optim(lr=2e-3, warmup=10, steps=tongue.judged))
    for _ in range(tongue.judged):
        learner.step(pack([rows[i] for i in rng.integers(len(rows), size=32)]), nll)
    return judge


def _odds(judge: nn.Module, rows: Sequence[np.ndarray]) -> list[float]:
    verdict = Engine(sampler=TorchSampler(judge, END), text=_letters, said=_letters)
    better, worse = (verdict.logp([(row, np.array([token])) for row in rows]) for token in (BETTER, WORSE))
    return [float(d) for d in better - worse]


def _letters(ids: Sequence[int] | np.ndarray) -> str:
    return " ".join(_WORDS[int(i)] for i in ids if i != END)


def engine_of(tongue: Tongue, model: nn.Module, taste: np.ndarray, seed: int, pairs: Sequence[Example] = ()) -> Engine:
    """The models that a decoder may ask in this world. pairs: what a judge learns from, where there is one to learn."""
    judge = cache(lambda: _judge(tongue, model, pairs, seed))

    def rewards(rows: Sequence[np.ndarray]) -> list[float]:
        if tongue.judged:
            return _odds(judge(), rows) if rows else []
        assert tongue.reward is not None
        out = []
        for row in rows:
            answer = row[PROMPT:][row[PROMPT:] != END]
            errs = np.random.default_rng(seed_for(seed, "judge", row.tolist()))
            out.append(tongue.reward(errs, tongue.wanted(answer, row[:PROMPT], taste)))
        return out

    return Engine(
        sampler=TorchSampler(model, END),
        text=lambda ids: tongue.asked(ids) if tongue.asked and len(ids) == PROMPT else tongue.spelt(_letters(ids)),
        said=lambda ids: tongue.said(tongue.spelt(_letters(ids))),
        sampling=Sampling(max_tokens=tongue.tokens),
        rewards=rewards if tongue.reward or tongue.judged else None,
        ids=tongue.reads,
    )


def measure(tongue: Tongue, room: Room) -> dict[str, float]:
    """See the head of this file."""
    model = _taught(tongue, room.seed)
    taste = np.random.default_rng(seed_for(room.seed, "taste")).normal(size=len(_WORDS))
    decode = bind("decode", {"piece": "sample"})
    if "knobs" in room.kept:
        stage = room.kept["knobs"]["evaluate"]
        decode = bind_all(stage.pieces, stage.params, stage.settings)["decoders"][0]
    rng = np.random.default_rng(seed_for(room.seed, "pairs"))
    pairs = []
    for prompt in (_prompt(rng) for _ in range(tongue.pairs)):
        chosen, rejected = tongue.pair(rng, prompt, taste)
        of = [tongue.rated(side) if tongue.rated else {} for side in (chosen, rejected)]
        ratings = {d: (of[0][d], of[1][d]) for d in of[0]}
        pairs.append(Example(prompt=prompt, chosen=chosen, rejected=rejected, ratings=ratings))
    engine = engine_of(tongue, model, taste, room.seed, pairs)
    fitted = decode.fit(engine, pairs) if decode.fit else None  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed_for(room.seed, "questions"))
    asks = [
        Ask(
            prompt=_prompt(rng),
            seed=seed_for(room.seed, "ask", i),
            max_tokens=tongue.tokens,
            forward_tokens=tongue.budget,
        )
        for i in range(QUESTIONS)
    ]
    done = decode(engine, asks, fitted)
    written = [d.segment.ids for d in done]
    worth = [tongue.wanted(ids[ids != END], a.prompt, taste) for ids, a in zip(written, asks, strict=True)]
    plain = Engine(sampler=TorchSampler(model, END), text=_letters, said=_letters)
    logp = plain.logp([(a.prompt, ids) for a, ids in zip(asks, written, strict=True)])
    return {
        "wanted": float(np.mean(worth)),
        "surprise": float(-logp.sum() / sum(map(len, written))),
        "forward_tokens": float(np.mean([d.account.spent for d in done])),
    }


def _word_by_word(text: str) -> np.ndarray:
    return np.array([_WORDS.index(w) for w in text.split()], dtype=np.int64)


def _place(tongue: Tongue) -> Place:
    return Place((), lambda room: None, partial(measure, tongue))


def _ended(ids: Any) -> np.ndarray:
    return np.append(np.asarray(ids, dtype=np.int64), END)


def _moody(bad: bool) -> Callable[[Rng], np.ndarray]:
    """Eight tokens of one mood; in the bad one the sixth is BAD."""

    def said(rng: Rng) -> np.ndarray:
        ids = rng.choice(list(HIGH if bad else LOW), 8)
        if bad:
            ids[5] = BAD
        return _ended(ids)

    return said


def _planted() -> Tongue:
    return Tongue(
        answer=lambda rng, prompt: _moody(bool(rng.random() < 0.5))(rng),
        pair=lambda rng, prompt, taste: (_moody(False)(rng), _moody(True)(rng)),
        wanted=lambda answer, prompt, taste: float(BAD not in answer),
    )


def planted() -> Place:
    """Half of the answers are in a mood that ends in a forbidden word five tokens later. Wanted: answers without it."""
    return _place(_PLANTED)


def _tastes() -> Tongue:
    drawn = lambda rng: _ended(rng.integers(3, 16, 6))  # noqa: E731
    worth = lambda answer, prompt, taste: float(taste[answer].mean()) if len(answer) else 0.0  # noqa: E731

    def pair(rng: Rng, prompt: np.ndarray, taste: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        two = sorted((drawn(rng) for _ in range(2)), key=lambda ids: worth(ids[:-1], prompt, taste))
        return two[1], two[0]

    return Tongue(
        answer=lambda rng, prompt: drawn(rng),
        pair=pair,
        wanted=worth,
        reward=lambda rng, value: value,
        pairs=2,
        tokens=7,
    )


def tastes() -> Place:
    """Answers of six tokens, all as likely; a user who likes some tokens and dislikes others, as a normal number says of
    each. Two pairs are known of the user. Wanted: the mean of these numbers over an answer's tokens."""
    return _place(_TASTES)


def _habits() -> Tongue:
    # What is taught is 3 to 15: another number for each two neighbours.
    of = lambda answer: (16 * answer[:-1] + answer[1:]) % len(_WORDS)  # noqa: E731
    worth = lambda answer, prompt, taste: float(taste[of(answer)].mean()) if len(answer) > 1 else 0.0  # noqa: E731

    def pair(rng: Rng, prompt: np.ndarray, taste: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        two = sorted((_ended(rng.integers(3, 16, 6)) for _ in range(2)), key=lambda ids: worth(ids[:-1], prompt, taste))
        return two[1], two[0]

    return replace(_tastes(), pair=pair, wanted=worth)


def habits() -> Place:
    """As `tastes`, with a user who likes or dislikes each token by the one before it, so no sum over tokens says what an answer is worth.
    Wanted: the mean over neighbours."""
    return _place(_HABITS)


def _sentence(rng: Rng, bad: float) -> list[int]:
    ids = rng.choice(list(LOW), 3).tolist()
    if rng.random() < bad:
        ids[int(rng.integers(3))] = BAD
    return [*ids, STOP]


def _sentences() -> Tongue:
    sentences = lambda rng, bad: _ended(sum((_sentence(rng, bad) for _ in range(3)), []))  # noqa: E731
    return Tongue(
        answer=lambda rng, prompt: sentences(rng, 0.3),
        pair=lambda rng, prompt, taste: (sentences(rng, 0.0), sentences(rng, 1.0)),
        wanted=lambda answer, prompt, taste: float(BAD not in answer),
        reward=lambda rng, value: value,
        tokens=14,
    )


def sentences() -> Place:
    """Answers of three sentences, each of which has a forbidden word three times in ten. Wanted: answers without it."""
    return _place(_SENTENCES)


def _tempers() -> Tongue:
    def answer(rng: Rng, chance: float) -> np.ndarray:
        likely, out = (0.7 if rng.random() < chance else 0.15), []
        for _ in range(3):
            harmful = rng.random() < likely
            ids = rng.choice(list(HIGH if harmful else LOW), 4).tolist()
            if harmful and rng.random() < 0.5:
                ids[int(rng.integers(4))] = BAD
            out += [*ids, STOP]
        return _ended(out)

    return Tongue(
        answer=lambda rng, prompt: answer(rng, 0.3),
        pair=lambda rng, prompt, taste: (answer(rng, 0.0), answer(rng, 1.0)),
        wanted=lambda answer, prompt, taste: float(not np.isin(answer, HIGH).any()),
        reward=lambda rng, value: value,
        tokens=16,
        budget=100,
    )


def tempers() -> Place:
    """Answers of three sentences of four tokens, some of harmful tokens, and half of those with the forbidden word too: 70 of a hundred
    sentences of three answers in ten are harmful, 15 of the others. Wanted: answers without a harmful token, the forbidden word not counted.
    100 forward tokens an answer."""
    return _place(_TEMPERS)


_NAMES = range(17, 23)  # the words r to w, by which an answer names what it was asked


def _useful() -> Tongue:
    named = lambda token: _NAMES[int(token) % 6]  # noqa: E731

    def answer(rng: Rng, prompt: np.ndarray, chance: float) -> np.ndarray:
        likely, out = (0.7 if rng.random() < chance else 0.15), []
        for token in prompt:
            out += [named(token), *rng.choice(list(HIGH if rng.random() < likely else LOW), 3), STOP]
        return _ended(out)

    def wanted(answer: np.ndarray, prompt: np.ndarray, taste: np.ndarray) -> float:
        begun = [int(s[0]) for s in np.split(answer, np.flatnonzero(answer == STOP) + 1) if len(s)]
        return float(begun == [named(token) for token in prompt] and not np.isin(answer, HIGH).any())

    return Tongue(
        answer=lambda rng, prompt: answer(rng, prompt, 0.3),
        pair=lambda rng, prompt, taste: (answer(rng, prompt, 0.0), answer(rng, prompt, 1.0)),
        wanted=wanted,
        tokens=16,
        steps=1000,
    )


def useful_tempers() -> Place:
    """Answers of three sentences, each of which names one token of the question and goes on with three harmful tokens or three harmless
    ones: 70 of a hundred sentences of three answers in ten are harmful, 15 of the others. Wanted: an answer that names all that was asked,
    in its order, without a harmful token: what keeps harm away by saying nothing of use gains nothing."""
    return _place(_USEFUL)


def _guess() -> Tongue:
    arms = list(range(3, 13))

    def answer(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        return _ended([3 if rng.random() < 0.5 else rng.choice(arms[1:])])

    def wanted(answer: np.ndarray, prompt: np.ndarray, taste: np.ndarray) -> float:
        return float(len(answer) == 1 and answer[0] == 4 + int(taste[4:13].argmax()))

    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (_ended([4 + int(taste[4:13].argmax())]), _ended([3])),
        wanted=wanted,
        reward=lambda rng, value: value,
        tokens=2,
    )


def guess() -> Place:
    """Ten answers, one of which half of all draws give; the user wants one of the other nine, and says of each answer
    whether it is that. Wanted: that the last answer is right."""
    return _place(_GUESS)


def _judged() -> Tongue:
    def answer(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        result = rng.choice([10, 11, 12, 13, 14], p=[0.34, 0.36, 0.1, 0.1, 0.1])
        return _ended([*rng.choice(list(LOW), 3), result])

    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (_ended([3, 4, 5, 10]), _ended([3, 4, 5, 11])),
        wanted=lambda answer, prompt, taste: float(len(answer) > 0 and answer[-1] == 10),
        reward=lambda rng, value: value + 0.84 * rng.normal(),
        tokens=6,
        said=lambda text: text.split(" ")[-1],
    )


def judged_results() -> Place:
    """Five results behind some working: the right one in 34 draws of a hundred, one wrong one in 36; a judge who, of two
    answers of which one is right, prefers the right one four times in five. Wanted: the right one."""
    return _place(_JUDGED)


def _strategies() -> Tongue:
    def answer(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        s = int(rng.choice(4, p=[0.4, 0.2, 0.2, 0.2]))
        noisy = lambda base, n: [base + s if rng.random() < 0.9 else base + int(rng.integers(4)) for _ in range(n)]  # noqa: E731
        return _ended([*noisy(10, 4), *noisy(3, 4)])

    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (_ended([10] * 4 + [3] * 4), _ended([11] * 4 + [4] * 4)),
        wanted=lambda answer, prompt, taste: float((answer[4:8] == 3).mean()) if len(answer) > 4 else 0.0,
        tokens=9,
        said=lambda text: text.split(" ")[-1],
    )


def planned() -> Place:
    """A plan of four tokens, which name one of four strategies (one of ten is a slip), then four that carry it out; four
    plans in ten are of the right strategy, two of each other. Wanted: the share of right tokens behind the plan."""
    return _place(_STRATEGIES)


def _hesitant() -> Tongue:
    styled = lambda rng, high: _ended(rng.choice(list(HIGH if high else LOW), 6))  # noqa: E731
    return Tongue(
        answer=lambda rng, prompt: styled(rng, rng.random() < (0.1 if prompt[0] < 9 else 0.9)),
        pair=lambda rng, prompt, taste: (styled(rng, True), styled(rng, False)),
        wanted=lambda answer, prompt, taste: float(np.isin(answer, HIGH).mean()) if len(answer) else 0.0,
        reward=lambda rng, value: value,
        tokens=7,
    )


def hesitant() -> Place:
    """Two styles; the better one comes nine times in ten after easy questions and once in ten after hard ones, which the
    first token of a question tells. Wanted: the share of tokens of the better style."""
    return _place(_HESITANT)


def _ramble() -> Tongue:
    return replace(_tastes(), answer=lambda rng, prompt: _ended(rng.integers(3, 16, 24)), pairs=16, tokens=25)


def ramble() -> Place:
    """As `tastes`, with answers of 24 tokens and 16 pairs. Wanted: the mean of what the user thinks of a token."""
    return _place(_RAMBLE)


def _witnessed() -> Tongue:
    def asked(prompt: np.ndarray) -> str:
        a, b = int(prompt[0]), int(prompt[1]) % 5
        return f"find x such that (x + {a}) % 5 == {b}?"

    def answer(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        return _ended([3 if rng.random() < 0.4 else rng.integers(4, 16)])

    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (answer(rng, prompt), answer(rng, prompt)),
        wanted=lambda answer, prompt, taste: float(
            len(answer) > 0 and (answer[0] - 3 + prompt[0]) % 5 == prompt[1] % 5
        ),
        tokens=2,
        said=lambda text: str(_WORDS.index(text.split(" ")[0]) - 3) if text in _WORDS else "",
        asked=asked,
    )


def witnessed() -> Place:
    """Questions for a number of a given remainder, to which the model says 0 four times in ten and any other of twelve
    numbers as often. Wanted: a number that fulfils the question."""
    return _place(_WITNESSED)


def _theorems() -> Tongue:
    """A number below 169 is two tokens, 3 + its digits of base 13; a statement is read as the word r and its three numbers."""

    def solved(prompt: np.ndarray) -> list[int]:
        a, b, c = (int(token) - 3 for token in prompt)
        return [3 + (a + b) % 13, 3 + (b + c) % 13]

    def asked(prompt: np.ndarray) -> str:
        a, b, c = (int(token) - 3 for token in prompt)
        return f"find x such that x // 13 == ({a} + {b}) % 13 and x % 13 == ({b} + {c}) % 13?"

    def read(text: str) -> np.ndarray:
        a, b, _, c = (int(n) for pair in re.findall(r"\((\d+) \+ (\d+)\)", text) for n in pair)
        return np.array([17, 3 + a, 3 + b, 3 + c], dtype=np.int64)

    def said(text: str) -> str:
        ids = [_WORDS.index(w) - 3 for w in text.split() if w in _WORDS]
        return str(13 * ids[0] + ids[1]) if len(ids) == 2 and all(0 <= i < 13 for i in ids) else ""

    def lesson(rng: Rng, prompt: np.ndarray) -> tuple[np.ndarray, int]:
        if rng.random() < 0.5:
            return _ended(solved(prompt)), 0
        other = _prompt(rng)  # a theorem of its own: what stands before it says nothing about it
        return _ended([17, *other, *solved(other)]), 4

    answer = lambda rng, prompt: _ended(solved(prompt))  # noqa: E731
    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (answer(rng, prompt), _ended(rng.integers(3, 16, 2))),
        wanted=lambda answer, prompt, taste: float(answer.tolist() == solved(prompt)),
        tokens=3,
        said=said,
        asked=asked,
        lesson=lesson,
        reads=read,
        steps=3000,
        until=1.0,
        budget=58,
    )


def theorems() -> Place:
    """Questions for the number that fulfils two equations. The model has learned as many questions as statements of such equations
    with their witnesses, until it errs by one nat a token (1.7 where it knows nothing): a statement always stood behind a question
    that it has nothing to do with, so a question with its own statement it has never seen. Wanted: the number. 58 forward tokens
    an answer: eight answers to the question and eight to both, or eighteen to the question."""
    return _place(_THEOREMS)


_STEP = 17  # the word r, which is written =


def _rewrites() -> Tongue:
    def asked(prompt: np.ndarray) -> str:
        letters = sorted({_WORDS[i] for i in prompt})
        swaps = [f"{a}{b} = {b}{a}" for i, a in enumerate(letters) for b in letters[i + 1 :]] or [f"{letters[0]} = zz"]
        first = [_WORDS[i] for i in prompt]
        return f"{'; '.join(swaps)}. {''.join(first)} = {''.join(sorted(first))}"

    def proof(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        word, out = prompt.tolist(), prompt.tolist()
        while swaps := [i for i in range(PROMPT - 1) if word[i] > word[i + 1]]:
            i = int(rng.choice(swaps))
            word[i], word[i + 1] = word[i + 1], word[i]
            if rng.random() < 0.4:
                word[rng.integers(PROMPT)] = int(rng.integers(3, 16))
            out += [_STEP, *word]
        return _ended(out)

    def proved(answer: np.ndarray, prompt: np.ndarray, taste: np.ndarray) -> float:
        goal, written = stated(asked(prompt)), words(spelt(_letters(answer)))
        return float(goal is not None and written is not None and not fault(written, goal.rules, goal.first, goal.last))

    spelt = lambda text: text.replace("r", "=")  # noqa: E731
    return Tongue(
        answer=proof,
        pair=lambda rng, prompt, taste: (proof(rng, prompt), proof(rng, prompt)),
        wanted=proved,
        tokens=24,
        asked=asked,
        spelt=spelt,
        budget=500,
        steps=1200,
    )


def rewrites() -> Place:
    """Words of three letters to be put in order by swaps of neighbours, each of which is an equation; four steps in ten of what
    the model has learned change a letter, and prove nothing. Wanted: a proof. 500 forward tokens an answer."""
    return _place(_REWRITES)


_SLOTS = range(17, 21)  # the words r, s, t, u


def _slots(high: int = 9, pairs: int = 200, errs: float = 0.0) -> Tongue:
    """The result of slot i is 3 + i if right, 9 + i if not. high: the least token that counts as high; errs: by how much the
    judge of the results errs, as a standard deviation."""

    def result(rng: Rng, prompt: np.ndarray, slot: int, before: Sequence[int]) -> int:
        needed = slot - 1 if (prompt >= high).sum() >= 2 else slot + 1
        ready = not 0 <= needed < 4 or (len(before) > 0 and (before[-1] - 3) % 6 == needed)
        return (3 if rng.random() < (0.95 if ready else 0.3) else 9) + slot

    def results(rng: Rng, prompt: np.ndarray, n: int) -> list[int]:
        out: list[int] = []
        for slot in rng.permutation(4)[:n]:
            out.append(result(rng, prompt, int(slot), out))
        return out

    def lesson(rng: Rng, prompt: np.ndarray) -> tuple[np.ndarray, int]:
        if rng.random() < 0.15:
            return _ended(results(rng, prompt, 4)), 0
        n = int(rng.integers(4))
        before = results(rng, prompt, n)
        slot = int(rng.choice([i for i in range(4) if 3 + i not in before and 9 + i not in before]))
        return np.array([_SLOTS[slot], *before, result(rng, prompt, slot, before)], dtype=np.int64), n + 1

    answer = lambda rng, prompt: _ended(results(rng, prompt, 4))  # noqa: E731
    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (answer(rng, prompt), answer(rng, prompt)),
        wanted=lambda answer, prompt, taste: len(set(answer.tolist()) & set(range(3, 7))) / 4,
        reward=lambda rng, value: value + errs * rng.normal(),
        pairs=pairs,
        tokens=6,
        lesson=lesson,
        reads=_word_by_word,
        steps=1500,
    )


def slots() -> Place:
    """Four sub-tasks, of which each is done right in 95 cases of a hundred straight behind the one that it needs, or where it
    needs none, and else in 30. Questions with two high tokens or more need them done upwards, others downwards. Wanted: the
    share of sub-tasks done right."""
    return _place(_SLOTTED)


def doubtful_slots() -> Place:
    """As `slots`, where three questions in four need the sub-tasks upwards, so that this order is the best of all that are the
    same for every question; sixty pairs, and a judge who errs by 0.3, more than a result that is right adds."""
    return _place(_DOUBTFUL)


def _hops(shares: Sequence[float] = (0.32, 0.32, 0.32, 0.04), *, works: bool = False, budget: int = 0) -> Tongue:
    """The words r, s, t ask for: the greatest number, the least, what the table says. shares: of lessons in each of these and in the whole
    at once, which is said with the two numbers before it (works) or without them."""
    table = np.random.default_rng(seed_for(0, "hops")).integers(3, 16, (16, 16))

    def right(prompt: np.ndarray) -> tuple[int, int, int]:
        most, least = int(prompt.max()), int(prompt.min())
        return most, least, int(table[most, least])

    def lesson(rng: Rng, prompt: np.ndarray) -> tuple[np.ndarray, int]:
        most, least, last = right(prompt)
        kind = int(rng.choice(4, p=list(shares)))
        if kind == 0:
            return np.array([17, most, END], dtype=np.int64), 1
        if kind == 1:
            return np.array([18, least, END], dtype=np.int64), 1
        if kind == 2:  # the two numbers are shown; they need not be those of the prompt
            a, b = sorted(rng.integers(3, 16, 2).tolist(), reverse=True)
            return np.array([17, a, 18, b, 19, table[a, b], END], dtype=np.int64), 5
        if works:
            return _ended([most, least, last]), 0
        return (np.array([19, last, END], dtype=np.int64), 1) if rng.random() < 0.5 else (_ended([last]), 0)

    answer = lambda rng, prompt: _ended([right(prompt)[2]])  # noqa: E731
    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (answer(rng, prompt), _ended([int(rng.integers(3, 16))])),
        wanted=lambda answer, prompt, taste: float(len(answer) > 0 and answer[-1 if works else 0] == right(prompt)[2]),
        tokens=4 if works else 2,
        said=lambda text: text.split(" ")[-1],
        budget=budget,
        lesson=lesson,
        reads=_word_by_word,
        steps=1000,
    )


def linked_questions() -> Place:
    """Three numbers; a fixed table says what to do for the greatest and the least of them. The model has learned to name either,
    to look up two that are shown, and, in 4 of 100 lessons, the whole at once. Wanted: the right entry."""
    return _place(_HOPS)


def worked_questions() -> Place:
    """As `linked_questions`, where the model has also learned to answer all at once: it names the greatest number, then the least, then
    what the table says. A quarter of the lessons each are of this and of the three questions. 22 forward tokens an answer: three questions that
    are asked by themselves, or four answers that work it out."""
    return _place(_WORKED)


_ACTS = range(17, 24)  # the words r to x


def _crafts(*, mixed: bool = False) -> Tongue:
    items = 3 + np.random.default_rng(seed_for(0, "crafts")).permutation(13)
    needed = items[: len(_ACTS)]

    def works(action: int, prompt: np.ndarray) -> bool:
        if action not in _ACTS:
            return False
        place = action - _ACTS[0]
        there = needed[place] in prompt
        if not mixed or place < 3:
            return there
        return there or items[place + 4] in prompt if place < 5 else not there

    def pair(rng: Rng, prompt: np.ndarray, taste: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        able = [a for a in _ACTS if works(a, prompt)]
        if not able:  # another state, in the place of this one
            prompt[:] = _prompt(rng)
            return pair(rng, prompt, taste)
        return _ended([rng.choice(able)]), _ended([rng.choice([a for a in _ACTS if a not in able])])

    return Tongue(
        answer=lambda rng, prompt: _ended([rng.choice(list(_ACTS))]),
        pair=pair,
        wanted=lambda answer, prompt, taste: float(len(answer) > 0 and works(int(answer[0]), prompt)),
        pairs=40,
        tokens=2,
        steps=200,
        judged=200 if mixed else 0,
    )


def crafts() -> Place:
    """States of three items of thirteen, and seven actions, each of which works where one item of its own is there. The agent
    takes any of them; forty pairs of an action that worked in a state and one that failed in it are the log. Wanted: an
    action that works."""
    return _place(_CRAFTS)


def mixed_crafts() -> Place:
    """As `crafts`, where three actions work with an item of their own, two with either of two items, which no rule of the
    method's can say, and two without an item. A judge has learned from the same forty pairs which action works."""
    return _place(_MIXED)


def _wishes() -> Tongue:
    moods = (LOW, HIGH, range(17, 23))
    share = lambda ids, kind, n: float(((ids >= kind[0]) & (ids <= kind[-1])).sum()) / n  # noqa: E731

    def answer(rng: Rng, prompt: np.ndarray) -> np.ndarray:
        out: list[int] = []
        for _ in range(2):
            mood = int(rng.integers(3))
            kinds = [mood if rng.random() < 0.7 else int(rng.integers(3)) for _ in range(4)]
            out += [int(rng.choice(list(moods[k]))) for k in kinds] + [STOP]
        return _ended(out)

    def wanted(answer: np.ndarray, prompt: np.ndarray, taste: np.ndarray) -> float:
        two = np.split(answer, np.flatnonzero(answer == STOP) + 1)[:2]
        return sum(min(1.0, share(ids, kind, 4)) for ids, kind in zip(two, (LOW, HIGH), strict=False)) / 2

    return Tongue(
        answer=answer,
        pair=lambda rng, prompt, taste: (answer(rng, prompt), answer(rng, prompt)),
        wanted=wanted,
        reward=lambda rng, value: value,
        rated=lambda answer: {"novelty": share(answer, LOW, 8), "feasibility": share(answer, HIGH, 8)},
        pairs=100,
        tokens=13,
    )


def wishes() -> Place:
    """Answers of two sentences of four words, each mostly of one of three kinds, at random; raters count the words of the first
    kind (novelty) and of the second (feasibility). Wanted: the share of the first kind in the first sentence and of the
    second in the second: no weights that hold for both give both."""
    return _place(_WISHES)


def _balance() -> Tongue:
    wishes = _wishes()
    assert wishes.rated is not None
    rated = wishes.rated
    return replace(wishes, wanted=lambda answer, prompt, taste: min(1.0, 2 * min(rated(answer).values())))


def balance() -> Place:
    """As `wishes`, but where in an answer each kind stands is all the same. Wanted: the smaller one of the two shares, twice: 1 where
    half of the words are of either kind, 0 where one kind is missing. Weights that hold for all sentences can give both."""
    return _place(_BALANCE)


_PLANTED, _TASTES, _SENTENCES, _TEMPERS = _planted(), _tastes(), _sentences(), _tempers()
_HABITS, _BALANCE = _habits(), _balance()
_USEFUL = _useful()
_GUESS, _JUDGED, _STRATEGIES = _guess(), _judged(), _strategies()
_HESITANT, _RAMBLE, _WITNESSED, _SLOTTED = _hesitant(), _ramble(), _witnessed(), _slots()
_HOPS, _CRAFTS, _WISHES, _REWRITES = _hops(), _crafts(), _wishes(), _rewrites()
_DOUBTFUL, _WORKED = _slots(high=7, pairs=60, errs=0.3), _hops((0.25,) * 4, works=True, budget=22)
_MIXED, _THEOREMS = _crafts(mixed=True), _theorems()
WORLDS = (
    planted,
    tastes,
    habits,
    sentences,
    tempers,
    useful_tempers,
    guess,
    judged_results,
    planned,
    hesitant,
    ramble,
    witnessed,
    slots,
    linked_questions,
    crafts,
    wishes,
    balance,
    rewrites,
    doubtful_slots,
    worked_questions,
    mixed_crafts,
    theorems,
)
