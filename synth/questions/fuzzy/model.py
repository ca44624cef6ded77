"""Trees are put into words by a model, and read back by a second prompt that did not see the first.

The model gets the template's question and is asked to word it better; its text must pass every check that a template
question passes, the round trip among them: the second prompt turns the text into JSON of types, relations and values,
and the question is accepted only if that gives exactly the pattern. The model's output is never trusted; the proof is
of the pattern that was read.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from synth.questions.fuzzy.grow import Grown
from synth.questions.fuzzy.lexicon import Lexicon, support
from synth.questions.fuzzy.spans import read_span
from synth.questions.fuzzy.text import Realiser
from synth.questions.fuzzy_tree import FuzzyTrees
from synth.questions.pattern import Clue, Named, Node, Nothing, Pattern, Span, Than, Third, canonical, from_json
from synth.types import Generate, Message, Problem, Quarantined, Sampling, seed_for

WRITE = """Rewrite the question below so that it reads like one a curious person would ask: natural, clear, one to four sentences.
Keep every clue and every number, name and range exactly; add no fact, name nothing that is not named, and do not answer it.
Reply with the question alone."""
READ = """Turn the question into JSON and reply with the JSON alone. What is asked is "ask": the relation, of "root": the thing described.
A thing is {"type": T, "clues": [...]}. A clue is {"relation": R, "side": "subject" or "object", "is": V}: the thing is the subject or the object
of R, and V is the other end: {"name": N}, another thing, {"value": words as in the question, e.g. "about 1,300"}, {"third": "top" or "bottom"},
{"more_than": thing}, {"less_than": thing}, or {"none": true}. A clue about the thing's name is {"initial": letter, "words": number or 0}.
Types and relations:
"""


class ModelWording:
    """A `synth.questions.fuzzy.text.Wording` of a model. `write_all` and `read_all` ask for many at once; `write` and
    `read` ask for what is missing.

    temperature, max_tokens   of writing; reading is greedy
    """

    def __init__(
        self,
        generate: Generate,
        templates: Realiser,
        lexicon: Lexicon,
        *,
        temperature: float = 0.7,
        max_tokens: int = 400,
    ) -> None:
        self.generate, self.templates, self.lexicon = generate, templates, lexicon
        self.temperature, self.max_tokens = temperature, max_tokens
        self._written: dict[str, str] = {}
        self._read: dict[str, list[Pattern]] = {}
        lines = [
            f'{r.name} ({r.label}): subject {r.domain}, object {r.range}. E.g. "{r.sentence("X", ["Y"])}"'
            for r in sorted(templates.relations.values(), key=lambda r: r.name)
        ]
        self._schema = READ + "\n".join(lines)

    def prompts_to_write(self, patterns: Sequence[Pattern], rng: random.Random) -> list[list[Message]]:
        """The conversations of `write_all`."""
        return [[Message(role="user", content=f"{WRITE}\n\n{self.templates.write(p, rng)}")] for p in patterns]

    def prompts_of(self, problems: Sequence[Problem], *, seed: int) -> list[list[Message]]:
        """About what `rewrite` sends for some questions, for an estimate: each is written, and (here the template text)
        read."""
        patterns = [from_json(p.lineage["pattern"]) for p in problems]
        writing = self.prompts_to_write(patterns, random.Random(seed))
        return writing + [
            [Message(role="system", content=self._schema), Message(role="user", content=p.question)] for p in problems
        ]

    def write_all(self, patterns: Sequence[Pattern], rng: random.Random) -> list[str]:
        """A text for each pattern; the same `rng` gives the same prompts, so the cache answers a second time."""
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens, seed=rng.randrange(2**31))
        replies = self.generate(self.prompts_to_write(patterns, rng), sampling)
        texts = [" ".join(t.split()).strip('"') for t in replies]
        self._written.update(zip(map(canonical, patterns), texts, strict=True))
        return texts

    def read_all(self, texts: Sequence[str]) -> None:
        """Reads many texts at once, for `read`."""
        prompts = [[Message(role="system", content=self._schema), Message(role="user", content=t)] for t in texts]
        for text, reply in zip(
            texts, self.generate(prompts, Sampling(temperature=0.0, max_tokens=2 * self.max_tokens)), strict=True
        ):
            pattern = self._parsed(reply)
            self._read[text] = [] if pattern is None else [pattern]

    def write(self, pattern: Pattern, rng: random.Random) -> str:
        """The text of one pattern."""
        known = self._written.get(canonical(pattern))
        return self.write_all([pattern], rng)[0] if known is None else known

    def read(self, text: str) -> list[Pattern]:
        """The pattern that the model reads out of a text, alone; [] where its JSON is none."""
        if text not in self._read:
            self.read_all([text])
        return self._read[text]

    def _parsed(self, reply: str) -> Pattern | None:
        match = re.search(r"\{.*\}", reply, re.DOTALL)
        if match is None:
            return None
        try:
            data = json.loads(match[0])
            return Pattern(relation=self._relation(data["ask"]), forward=True, root=self._node(data["root"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return None

    def _relation(self, name: Any) -> str:
        if name not in self.templates.relations:
            raise ValueError(f"{name!r} is no relation")
        return name

    def _node(self, data: Mapping[str, Any]) -> Node:
        return Node(type=str(data["type"]), clues=tuple(self._clue(c) for c in data["clues"]))

    def _clue(self, data: Mapping[str, Any]) -> Clue | Named:
        if "initial" in data:
            return Named(initial=str(data["initial"]), words=int(data.get("words") or 0))
        r = self.templates.relations[self._relation(data["relation"])]
        forward, value = data["side"] == "subject", data["is"]
        if "name" in value:
            where = r.name if forward and r.literal else r.range if forward else r.domain
            (target,) = self.lexicon.find(where, str(value["name"]))
        elif "value" in value:
            bounds = read_span(str(value["value"]), r.range)
            if bounds is None:
                raise ValueError(f"{value['value']!r} is no vague value")
            target = Span(low=bounds[0], high=bounds[1], said=str(value["value"]))
        elif "third" in value:
            target = Third(largest=value["third"] == "top")
        elif "more_than" in value or "less_than" in value:
            larger = "more_than" in value
            target = Than(larger=larger, other=self._node(value["more_than" if larger else "less_than"]))
        else:
            target = Nothing() if value.get("none") else self._node(value)
        return Clue(relation=r.name, forward=forward, target=target)


def rewrite(
    trees: FuzzyTrees, problems: Sequence[Problem], wording: ModelWording, *, seed: int
) -> tuple[list[Problem], list[Quarantined]]:
    """The questions in the model's words, each behind all gates of the templates; what fails one is quarantined with its
    reason."""
    grown = [_grown(p) for p in problems]
    texts = wording.write_all([g.pattern for g in grown], random.Random(seed_for(seed, "rewrite", "", "", 0)))
    wording.read_all(list(dict.fromkeys(texts)))
    accepted, quarantined = [], []
    for p, g, text in zip(problems, grown, texts, strict=True):
        facts = support(trees.graph, g.pattern, g.root, g.answer)
        failed, pages = trees.refute(g, text, p.split, facts, wording=wording)
        if failed is not None:
            quarantined.append(
                Quarantined(
                    id=p.id, stage="questions", reason=failed[0], evidence=f"{text} | {failed[1]} | {p.question}"
                )
            )
            continue
        new = trees.problem(
            g, text, p.split, facts, pages=pages, index=p.lineage["index"], level=int(p.difficulty["level"])
        )
        row = {
            f: getattr(new, f) for f in ("prompt", "answer", "verifier", "args", "env", "family", "difficulty", "split")
        }
        aside = {"not_meant": p.lineage["not_meant"]} if "not_meant" in p.lineage else {}  # of what the templates said
        own = {"wording": "model", "templates": p.question}
        accepted.append(Problem.make(**row, lineage={**new.lineage, **aside, **own}))
    return accepted, quarantined


def _grown(p: Problem) -> Grown:
    witnesses = {int(i): w for i, w in p.lineage.get("witnesses", {}).items()}
    return Grown(from_json(p.lineage["pattern"]), p.lineage["root"], p.lineage["answer"], witnesses)
