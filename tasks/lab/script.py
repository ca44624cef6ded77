"""A policy that speaks from a script, as a trained model would, without any training.

The dry step of a recipe (tasks/lab/dry.py) runs real stages on a model of a few thousand random weights. Left to itself
the model would write noise, all rewards would be equal, and the dry step would show nothing. So its turns are given
texts: right and wrong answers, with and without working, the actions of each environment. The texts are encoded, and
their log-probs are computed by the model, as if it had sampled them.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch

from synth.types import Problem, Sampling, seed_for
from synth.verify.pipeline import TOOLS
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model import lora
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler
from training.types import Segment

Say = Callable[[str, int, int], str]  # (text so far, turn from 0, seed) -> the turn


class Scripted(TorchSampler):
    """A TorchSampler whose turns come from `say`. bits: bits of the mantissas that weights are rounded to for the
    reported log-probs, as in an engine of low precision; 0 rounds nothing."""

    say: Say
    speaks: Renderer
    bits: int = 0

    def open(
        self,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        edits: Sequence[Any] = (),
        policies: Sequence[str] = (),
    ) -> Any:
        if any(e is not None for e in edits):  # once training has changed the model, it speaks for itself
            return super().open(prompts, seeds, edits)
        model = self.model
        if self.bits:
            model = copy.deepcopy(model)
            with torch.no_grad():
                for p in model.parameters():
                    mantissa, exponent = torch.frexp(p)
                    p.copy_(torch.ldexp((mantissa * 2**self.bits).round() / 2**self.bits, exponent))
        return _Session(self, model, prompts, seeds, policies)


class _Session:
    holds = True

    def __init__(
        self,
        sampler: Scripted,
        model: Any,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        policies: Sequence[str],
    ) -> None:
        self.sampler, self.model, self.seeds = sampler, model, list(seeds)
        self.policies = list(policies) or [""] * len(self.seeds)
        self.ids = [np.asarray(p, dtype=np.int64) for p in prompts]
        self.rows, self.turns = list(range(len(prompts))), np.zeros(len(prompts), dtype=np.int64)

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        self.rows = list(rows)
        for r, x in zip(rows, new, strict=True):
            self.ids[r] = np.concatenate([self.ids[r], x])

    def generate(self, sampling: Sampling, choices: Sequence[Sequence[np.ndarray]] = ()) -> list[Segment]:
        sampler, render = self.sampler, self.sampler.speaks
        turns, rows = [], []
        offered = dict(zip(self.rows, choices, strict=True)) if len(choices) else {}
        for r in self.rows:
            seed = 0 if sampling.temperature == 0 else self.seeds[r]  # the most likely turn is always the same
            heard = render.decode(self.ids[r])
            if sampling.choices:
                text = sampling.choices[seed_for(seed, "choice", int(self.turns[r])) % len(sampling.choices)]
            else:
                text = sampler.say(heard, int(self.turns[r]), seed)
            ids = render.turn(text)[: sampling.max_tokens]
            if len(mine := offered.get(r, ())) and not any(np.array_equal(ids, x) for x in mine):
                ids = mine[seed_for(seed, "choice", int(self.turns[r])) % len(mine)]
            turns.append(ids)
            whole = np.concatenate([self.ids[r], ids])
            rows.append(Row(ids=whole, trainable=np.arange(len(whole)) >= len(self.ids[r])))
            self.ids[r] = whole
        logp, entropy = ([np.zeros(0, dtype=np.float32)] * len(rows) for _ in range(2))
        for policy in dict.fromkeys(self.policies[r] for r in self.rows):
            mine = [i for i, r in enumerate(self.rows) if self.policies[r] == policy]
            if policy:
                lora.use(self.model, policy)
            batch = pack([rows[i] for i in mine])
            stats = score(self.model, batch, temperature=sampling.temperature or 1.0)
            assert stats.entropy is not None
            cuts = np.cumsum([len(turns[i]) for i in mine])[:-1]
            for known, x in ((logp, stats.logp), (entropy, stats.entropy)):
                for i, one in zip(mine, np.split(x[batch.trainable].numpy().astype(np.float32), cuts), strict=True):
                    known[i] = one
        self.turns[self.rows] += 1
        return [
            Segment(
                ids=ids,
                role="model",
                logp=a,
                entropy=b,
                stop="end" if ids[-1] == sampler.end_id else "length",
                version=sampler.version,
                sampling=sampling,
            )
            for ids, a, b in zip(turns, logp, entropy, strict=True)
        ]


@dataclass
class Script:
    """Chooses what is said to each problem: half of the answers are right, half of them follow working, and where the
    environment has actions, the turns before the answer take them.

    problems   those that may be asked       words   of the working        prefixes   other texts that may stand before an answer
    opens      whether a search is followed by a page, as a declared formula wants it
    """

    problems: Sequence[Problem]
    words: str = "so that we can see what it is and find the way from here"
    prefixes: Sequence[str] = ()
    opens: bool = False

    @cached_property
    def _questions(self) -> list[tuple[Problem, str]]:
        return [(p, p.question) for p in self.problems]

    @cached_property
    def _words(self) -> list[set[str]]:
        return [set(question.split()) for _, question in self._questions]

    def __call__(self, heard: str, turn: int, seed: int) -> str:
        rng = np.random.default_rng(seed_for(seed, "script", turn))
        problem = self._found(heard)
        env = next((env for words, env in SAID.items() if words in heard), problem.env if problem else "")
        act = ACTS.get(env)
        problem = problem or (self.problems[0] if self.problems else None)
        if self.opens and problem and heard.rfind("</search>") > heard.rfind("</open>") and rng.random() < 0.8:
            return f"<open>{problem.answer}</open>"
        if act is not None and problem is not None and (text := act(problem, heard, turn, rng)):
            return text
        return self.working(rng) + self.answer(problem, rng, told=problem is not None and _told(problem, heard))

    def _found(self, heard: str) -> Problem | None:
        inside = [p for p, question in self._questions if question in heard]
        if not inside:  # what is shown as a picture is not said
            inside = [
                p for p, question in self._questions if "\n" in question and question.rpartition("\n")[2] in heard
            ]
        return max(inside, key=lambda p: len(p.question), default=None) or self._near(heard)

    def _near(self, heard: str) -> Problem | None:
        """The problem that shares most words with the message: environments cut and rewrite questions."""
        words = set(heard.split())
        shares = [len(words & known) / max(len(known), 1) for known in self._words]
        return self.problems[int(np.argmax(shares))] if shares and max(shares) > 0.3 else None

    def working(self, rng: np.random.Generator) -> str:
        if rng.random() < 0.4:
            return ""
        if len(self.prefixes) and rng.random() < 0.5:
            return str(rng.choice(list(self.prefixes)))
        words = self.words.split()
        text = " ".join(rng.choice(words, rng.integers(20, 160) if rng.random() < 0.1 else rng.integers(1, 9)))
        return f"<think>{text}</think>" if rng.random() < 0.6 else f"{text} "

    @staticmethod
    def chance(problem: Problem | None) -> float:
        """The probability of a right answer: some problems are never solved and some always, which curricula, filters
        and hints need."""
        kinds = (0.0, 1.0, 0.12, 0.12, 0.12, 0.88, *[0.5] * 4)
        return kinds[seed_for(0, "chance", problem.id) % len(kinds)] if problem else 0.3

    def answer(self, problem: Problem | None, rng: np.random.Generator, told: bool = False) -> str:
        if rng.random() < 0.08 and 0 < self.chance(problem) < 1:
            return "I do not know"
        right = problem.answer if problem else "1"
        solution = (problem.lineage.get("solution") or "") if problem else ""
        shown = re.search(r"<answer>(.*)</answer>", solution, re.DOTALL)
        right = shown.group(1) if shown else right
        if rng.random() < max(self.chance(problem), 0.7 * told):
            return f"<answer>{right}</answer>"
        others = [p.answer for p in self.problems if problem and p.family == problem.family and p.answer != right]
        kinds = [*(rng.choice(others, 2) if others else []), right[: len(right) // 2] or "?", f"{right} {right}"]
        return f"<answer>{rng.choice(kinds)}</answer>"


def _told(problem: Problem, heard: str) -> bool:
    """Whether the text after the question, in the same message, gives the answer away."""
    return problem.answer in heard.partition(problem.question)[2].partition("<|im_end|>")[0]


def _properties(question: str) -> list[str]:
    """The words that problems of twenty_questions list behind each thing."""
    return sorted({w for part in re.findall(r": ([^;.]+)", question) for w in part.replace(",", " ").split()})


def _ask(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    known = _properties(p.question)
    return f"<ask>{rng.choice(known)}</ask>" if known and turn < 3 and rng.random() < 0.6 else ""


def _search(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    words = p.question.split()
    if turn >= 3 or rng.random() < 0.4:
        return ""
    about = p.answer if rng.random() < 0.5 else " ".join(rng.choice(words, min(3, len(words))))
    before = "<think>look it up</think>" if rng.random() < 0.3 else ""
    opened = rng.random() < 0.2
    return before + (f"<open>{about}</open>" if opened and "<open>" in heard else f"<search>{about}</search>")


def _tools(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if turn >= 3 or rng.random() < 0.4:
        return ""
    name, arguments = (
        ("search", {"query": p.question.split()[-1]}) if rng.random() < 0.5 else ("calculator", {"expression": "1 + 1"})
    )
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def _bargain(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if rng.random() < 0.3:
        return f"<strategy>{rng.choice(['firm', 'close', 'warm', 'hard', 'probe'])}</strategy>"
    return f"<say>{rng.choice(['hold', 'hold', 'accept', 'flatter', 'ask', 'insult'])}</say>"


def _user(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    need = p.answer if rng.random() < 0.7 else "rest"
    act = rng.choice(["<ask/>", "<praise/>", f"<acknowledge>{need}</acknowledge>", f"<advise>{need}</advise>"])
    return ("<think>who is it</think>" if rng.random() < 0.8 else "") + str(act)


def _expert(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return "<consult>what is it?</consult>" if turn < 2 and rng.random() < 0.5 else ""


def _route(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return (
        f"<search>{rng.choice(['Ada', 'Bo', 'Cleo', 'Dov'])}: what is it</search>"
        if turn < 2 and rng.random() < 0.6
        else ""
    )


def _workflow(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    plan = rng.choice(["generate", "generate*3 ensemble", "generate*5 review ensemble", "generate*2 test"])
    return f"<plan>{plan}</plan>" if turn < 1 and rng.random() < 0.5 else f"<answer>{plan}</answer>"


def _progress(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    numbers = [int(x) for x in re.findall(r"\d+", heard)] or [1, 1]
    a, b = rng.choice(numbers, 2)
    operations = re.findall(r"\b(add|subtract|multiply) (\d+) (?:and|from|by) (\d+)", heard)
    name, x, y = (
        operations[-1] if operations and rng.random() < 0.6 else (rng.choice(["add", "subtract", "multiply"]), a, b)
    )
    notes = f"<progress>r{a}</progress>" if rng.random() < 0.5 else ""
    return f"{notes}<call>{name}({x}, {y})</call>"


def _reader(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if "That was all" in heard:
        return f"<answer>{p.answer if rng.random() < 0.5 else 'Esk'}</answer>"
    names = re.findall(r"[A-Z][a-z]+", heard)
    recall = "<recall>friend</recall>" if rng.random() < 0.3 else ""
    return f"<memory>{' '.join(rng.permutation(names)[:6])}</memory>{recall}"


def _overseen(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if "Is each call what was requested" not in heard:
        return _progress(p, heard, turn, rng)
    words = rng.choice(["right", "wrong"], heard.rpartition("Is each call")[2].count("Request "))
    return f"<steps>{' '.join(words)}</steps><final>{rng.choice(['right', 'wrong'])}</final>"


def _write_and_test(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if turn % 2:
        tests = [f"f({x[0]}) == {y}" for x, y in zip(p.args["inputs"][:3], p.args["expected"], strict=False)]
        return f"<tests>{chr(10).join([*tests, *['f([1]) == 99'] * int(rng.integers(0, 3))])}</tests>"
    programs = [p.answer, "def f(xs):\n    return xs", "def f(xs):\n    return len(xs)", "def f(xs):\n    return 0"]
    return f"<answer>{programs[int(rng.integers(0, 4))]}</answer>"


def _persuade(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    rules = ["1 0", "1 1", "1/2 0", "1 1/9", f"1 {Fraction(int(rng.integers(1, 6)), 7)}"]
    return f"<rule>{rng.choice(rules)}</rule>"


def _corridor(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return f"<move>{rng.choice(['left', 'right', 'stay'])}</move>" if rng.random() < 0.95 else ""


def _team(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    acts = (re.findall(r"You may: ([\w ]+)\.", heard) or ["stay"])[-1].split()
    return f"<act>{rng.choice(acts)}</act>" if rng.random() < 0.95 else ""


def _offers(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    """An offer near the right one where it is asked for, and either reply where one is."""
    before = "<think>what comes later?</think>" if rng.random() < 0.3 else ""
    if heard.rstrip().endswith("you offer."):
        return f"{before}<offer>{max(0, int(p.answer) + int(rng.integers(-3, 4)))}</offer>"
    return f"{before}<reply>{rng.choice(['accept', 'refuse'])}</reply>" if rng.random() < 0.95 else ""


def _assemble(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    right = [*p.answer.split(), "done"]
    return right[turn] if turn < len(right) and rng.random() < 0.8 else str(rng.choice([*TOOLS, "done"]))


def _home(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    kinds = re.findall(r"You may suggest (.+?) or stay silent", heard)[-1:] or ["news"]
    return f"<say>{rng.choice(kinds[0].split(', '))}</say>" if rng.random() < 0.6 else "<silent/>"


def _things(p: Problem) -> list[str]:
    """The things that the first line of a problem of pictures describes."""
    return [f"{a} {b}" for a, b in re.findall(r"(\w+) (\w+) \d+ at \d+ \d+", p.question)]


def _perceive(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    named = [x for x in [*_things(p), "pink star"] if rng.random() < 0.5]
    again = f"; asked: {p.question.split()[-1].rstrip('?')}" if rng.random() < 0.5 else ""
    answer = p.answer if rng.random() < 0.5 else str(rng.integers(0, 4))
    shown = f"<perception>{', '.join(named)}{again}</perception>" if rng.random() < 0.9 else ""
    return f"{shown}<answer>{answer}</answer>"


def _focus(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return f"<box>{rng.integers(0, 4)} {rng.integers(0, 5)}</box>" if turn == 0 else ""


def _reflect(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    one, two = (p.answer if rng.random() < 0.5 else "none" for _ in range(2))
    words = " ".join(["look"] * int(rng.integers(0, 7)))
    again = f"<reflection>{words}</reflection><answer>{two}</answer>" if rng.random() < 0.8 else ""
    return f"<answer>{one}</answer>{again}"


def _halves(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return " ".join([f"it {p.answer}"] * int(rng.integers(1, 4))) if turn == 0 and rng.random() < 0.8 else ""


def _rank(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    shown = re.findall(r"^\[(\d+)\]", heard, re.MULTILINE)
    order = " > ".join(f"[{n}]" for n in rng.permutation(shown)) if rng.random() < 0.9 else "the first"
    return f"<answer>{order}</answer>"


def _rate(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    return f"<answer>{rng.choice([0, 20, 45, 60, 80, 100]) if rng.random() < 0.9 else 'very'}</answer>"


def _facts(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    about = re.findall(r"what is known of (.+?), a sentence a line", heard)[-1]
    if turn < 1 or (turn < 3 and rng.random() < 0.3):
        return f"<search>{about}</search>"
    known_lines = [line for line in heard.splitlines() if about in line and "what is known" not in line]
    sentences = [
        *rng.permutation(known_lines)[: int(rng.integers(0, 3))],
        *([f"{about} is a river"] if rng.random() < 0.5 else []),
    ]
    return f"<answer>{chr(10).join(sentences)}</answer>"


def _point(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if turn and rng.random() < 0.3:
        return "<stop/>"
    return f"<move>{rng.choice(['left', 'right'])} {rng.integers(1, 4)} {rng.choice(['up', 'down'])} {rng.integers(1, 4)}</move>"


def _frames(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    if turn >= 3 or rng.random() < 0.4:
        return ""
    a, b = sorted(rng.integers(1, 9, 2))
    thought = f"<think>look {a} {b if rng.random() < 0.7 else 9}</think>" if rng.random() < 0.5 else ""
    return f"{thought}<frames>{a} {b}</frames>"


def _rewatch(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    """Half of what is said to be seen is what the clip shows in a frame."""
    track = re.search(r"(\w+ \w+) ((?:-, )*)(\d) (\d) \d", p.question)
    assert track is not None
    at = 1 + track[2].count("-")
    spot = (track[3], track[4]) if rng.random() < 0.5 else (3, 3)
    seen = f"<observation>frame {at}: {track[1]} at {spot[0]} {spot[1]}</observation>" if rng.random() < 0.8 else ""
    return f"{seen}<answer>{p.answer if rng.random() < 0.5 else 'up'}</answer>"


def _rewording(p: Problem, heard: str, turn: int, rng: np.random.Generator) -> str:
    text = heard.rpartition("Say it in another way: ")[2].partition("<|im_end|>")[0]
    return f"<answer>{rng.choice([text, text.upper(), f'{text} {text}', 'something else'])}</answer>"


SAID = {
    "Say it in another way: ": "rewording",
    "The buyer says:": "bargain",
    "or stay silent. You remember:": "home",
    "Rank the passages by": "rank",
    "How relevant is the passage": "rate",
    "what is known of": "facts",
}  # for environments that reword the question
ACTS: dict[str, Callable[[Problem, str, int, np.random.Generator], str]] = {
    "ask": _ask,
    "curious": _ask,
    "diagnose": _ask,
    "search": _search,
    "tools": _tools,
    "bargain": _bargain,
    "user": _user,
    "expert": _expert,
    "route": _route,
    "workflow": _workflow,
    "progress": _progress,
    "overseen": _overseen,
    "reader": _reader,
    "persuade": _persuade,
    "write_and_test": _write_and_test,
    "halves": _halves,
    "perceive": _perceive,
    "focus": _focus,
    "reflect": _reflect,
    "corridor": _corridor,
    "team": _team,
    "offers": _offers,
    "assemble": _assemble,
    "home": _home,
    "rank": _rank,
    "rate": _rate,
    "facts": _facts,
    "point": _point,
    "frames": _frames,
    "rewatch": _rewatch,
    "rewording": _rewording,
}
