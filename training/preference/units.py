"""The units of preference losses: one pair, or several that belong together, made from the cleaned pairs.

A loss names its unit (`UNIT`) and how many pairs are in it (`ROWS_PER_UNIT`). Every function here gives a list of units,
each a list of `Two`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synth.types import Message, PreferencePair, Problem, Scored
from synth.verify import extract_answer, verify
from training.learner.pack import Row
from training.learner.rows import prompt_ids
from training.model.render import Renderer

Side = tuple[tuple[Message, ...], str]  # the prompt, the answer


@dataclass(frozen=True)
class Two:
    """The two sides of a pair as a loss reads them, and the pair that they belong to."""

    chosen: Side
    rejected: Side
    pair: PreferencePair


def plain(pair: PreferencePair) -> Two:
    return Two((pair.prompt, pair.chosen), (pair.prompt, pair.rejected), pair)


def pair(pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> list[list[Two]]:
    """Each pair is a unit."""
    return [[plain(p)] for p in pairs]


def prompt(pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> list[list[Two]]:
    """Two pairs of one prompt; a left-over pair is used twice."""
    return list(_each_prompt(pairs))


def _each_prompt(pairs: Sequence[PreferencePair]) -> Iterator[list[Two]]:
    """Prompts in the order in which they first come. In memory are 40 bytes a pair."""
    name = np.empty((len(pairs), 2), np.int64)
    for i, p in enumerate(pairs):
        text = json.dumps([m.key for m in p.prompt]).encode()
        name[i] = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), np.int64)
    order = np.lexsort((name[:, 1], name[:, 0]))  # stable: places of one prompt ascend
    begins = np.flatnonzero(np.r_[True, (name[order[1:]] != name[order[:-1]]).any(1)]) if len(order) else order
    ends = np.r_[begins[1:], len(order)]
    for k in np.argsort(order[begins]):
        mine = order[begins[k] : ends[k]].tolist()
        for i in range(0, len(mine), 2):
            first = plain(pairs[mine[i]])
            yield [first, plain(pairs[mine[i + 1]]) if i + 1 < len(mine) else first]


def contrast(pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> list[list[Two]]:
    """Two prompts and their chosen answers, each of which is the rejected answer of the other prompt; a program has
    confirmed that it is wrong there.

    Neighbours of one family are taken, in the order of the pairs. A pair without a problem, or whose answer is right
    for both, is left out.
    """
    return list(_each_contrast(pairs, problems))


def _each_contrast(pairs: Iterable[PreferencePair], problems: Mapping[str, Problem]) -> Iterator[list[Two]]:
    waiting: dict[str, PreferencePair] = {}
    for p in pairs:
        problem = problems.get(p.problem)
        if problem is None:
            continue
        other = waiting.pop(problem.family, None)
        if other is None or not (wrong(problem, other.chosen) and wrong(problems[other.problem], p.chosen)):
            waiting[problem.family] = p
            continue
        a, b = (other.prompt, other.chosen), (p.prompt, p.chosen)
        yield [Two(a, (other.prompt, p.chosen), other), Two(b, (p.prompt, other.chosen), p)]


def wrong(problem: Problem, text: str) -> bool:
    """Whether the verifier says that the text is a wrong answer to the problem."""
    answer = extract_answer(text)
    if answer is None:
        return False
    score = verify(problem, answer)
    return isinstance(score, Scored) and score.value <= 0


def instructions(pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> list[list[Two]]:
    """The pair; the pair under an instruction that the chosen answer keeps and the rejected one breaks; and the chosen
    answer under that instruction against the same answer under one that it breaks.

    Each instruction is about one word, so that a program can check it: the word is in the chosen answer and not in the
    rejected one. A pair whose chosen answer has no such word is left out.
    """
    units = []
    for p in pairs:
        own = [w for w in words(p.chosen) if w not in words(p.rejected)]
        if not own:
            continue
        kept, broken = (instructed(p.prompt, f"{verb} the word {own[0]}.") for verb in ("Use", "Avoid"))
        more = Two((kept, p.chosen), (kept, p.rejected), p)
        units.append([plain(p), more, Two((kept, p.chosen), (broken, p.chosen), p)])
    return units


def words(text: str) -> list[str]:
    """The words of a text without tags."""
    return [w for w in text.replace("<", " <").replace(">", "> ").split() if w[0] != "<" and w[-1] != ">"]


def instructed(prompt: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    """The prompt with a sentence appended to its last user message."""
    last = max(i for i, m in enumerate(prompt) if m.role == "user")
    instructed_turn = Message(role="user", content=f"{prompt[last].content} {sentence}")
    return (*prompt[:last], instructed_turn, *prompt[last + 1 :])


def conditioned(pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> list[list[Two]]:
    """Each answer after a system message that names its rewards: whether it was preferred, and how short it is (10 =
    one word)."""

    def told(p: PreferencePair, text: str, good: int) -> Side:
        short = max(0, 11 - max(1, len(words(text))))
        return (Message(role="system", content=f"good {good} short {short}"), *p.prompt), text

    return [[Two(told(p, p.chosen, 1), told(p, p.rejected, 0), p)] for p in pairs]


UNITS = {
    "pair": pair,
    "prompt": prompt,
    "contrast": contrast,
    "instructions": instructions,
    "conditioned": conditioned,
    "meta": pair,
}


def each(kind: str, pairs: Sequence[PreferencePair], problems: Mapping[str, Problem]) -> Iterator[list[Two]]:
    """The units of a kind, made one after the other; of the pairs few are held."""
    if kind == "prompt":
        yield from _each_prompt(pairs)
    elif kind == "contrast":
        yield from _each_contrast(pairs, problems)
    else:
        for p in pairs:
            yield from UNITS[kind]([p], problems)


def each_unit(
    renderer: Renderer, units: Iterable[Sequence[Two]], max_tokens: int, scalars: Mapping[str, Mapping[str, float]]
) -> Iterator[list[Row]]:
    """Of each unit its rows, chosen before rejected, trainable on the answers alone; none where a row is longer than
    `max_tokens`.

    scalars: pair id -> the columns of both rows.
    """
    for i, unit in enumerate(units):
        rows = []
        for two in unit:
            for prompt, text in (two.chosen, two.rejected):
                start = prompt_ids(renderer, prompt)
                ids = np.concatenate([start, renderer.turn(text)])
                rows.append(
                    Row(
                        ids=ids,
                        trainable=np.arange(len(ids)) >= len(start),
                        group=i,
                        scalars=scalars.get(two.pair.id, {}),
                    )
                )
        yield rows if max(len(r.ids) for r in rows) <= max_tokens else []
