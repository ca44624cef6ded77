"""Preference pairs from demonstrations with a search tool: the chosen side is the demonstrator's turn, the rejected
side a wrong one.

The prompt is the conversation up to an assistant turn. A wrong *answer* names another thing from the earlier results,
and the verifier confirms that it is wrong. A wrong *search* asks about another entity or relation, and the search tool
itself confirms that it returns none of the passages that the demonstration uses later; otherwise the pair is
quarantined as `still_right`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from synth.types import Demonstration, Message, PreferencePair, Problem, Quarantined, Scored, seed_for
from synth.verify import CLOSE, OPEN, extract_answer, verify

_QUERY = re.compile(r"<search>(.*?)</search>", re.DOTALL)
_WORD = re.compile(r"\w+")
# A later search can make up for a wrong one; a wrong answer ends the episode.
SEVERITY = {"wrong_answer": 1.0, "wrong_entity": 0.5, "wrong_relation": 0.5, "premature_answer": 1.0}
ERRORS = tuple(SEVERITY)


class World:
    """Knowledge about the texts: the search tool, the names of entities with their types, and the words of relations.

    search   query -> passages, one per line
    names    name -> entity type
    labels   the words by which queries name relations: "capital", "population rank"
    """

    def __init__(self, search: Callable[[str], str], names: Mapping[str, str], labels: Iterable[str]) -> None:
        self.search, self.labels = search, sorted(set(labels))
        self._names = {tuple(_words(n)): (n, t) for n, t in sorted(names.items()) if _words(n)}
        self._longest = max(map(len, self._names), default=0)
        self.by_type: dict[str, list[str]] = {}
        for name, kind in self._names.values():
            self.by_type.setdefault(kind, []).append(name)

    def mentions(self, text: str) -> dict[str, str]:
        """name -> type of the entities that `text` names, in order, the longest name at each place."""
        words, at, kinds = _words(text), 0, {}
        while at < len(words):
            sizes = range(min(self._longest, len(words) - at), 0, -1)
            size = next((n for n in sizes if tuple(words[at : at + n]) in self._names), 0)
            if size:
                name, kind = self._names[tuple(words[at : at + size])]
                kinds[name] = kind
            at += size or 1
        return kinds


def wrong_turns(
    seed: int,
    problem: Problem,
    demonstration: Demonstration,
    index: int,
    world: World,
    *,
    errors: Sequence[str] = ERRORS,
) -> PreferencePair | Quarantined:
    """Pair `index` of a demonstration: a type of `errors` (uniformly among those that apply), then a turn. They are in
    `columns["error"]`.

    Raises ValueError for an unknown error type.
    """
    unknown = sorted(set(errors) - set(ERRORS))
    if unknown or not errors:
        raise ValueError(f"wrong_turns: error types {unknown or list(errors)} must be some of {', '.join(ERRORS)}")
    rng = Random(seed_for(seed, "preferences", "wrong_turns", demonstration.id, index))
    messages, name = demonstration.messages, f"{demonstration.id}/{index}"
    useful = evidence(messages, world)
    answers = [i for i in _turns(messages) if extract_answer(messages[i].content) is not None]
    places = {e: turns for e in sorted(errors) if (turns := answers if e == "wrong_answer" else list(useful))}
    if not places:
        return _aside(name, "no_evidence", f"no turn of {demonstration.id} leads to what a later turn uses")
    error = rng.choice(list(places))
    at = rng.choice(places[error])
    chosen, rejected = messages[at].content, _wrong(error, messages[:at], messages[at].content, problem, world, rng)
    if rejected is None:
        return _aside(name, "not_editable", f"{error}: nothing to put in the place of {chosen!r}")
    if _still_right(rejected, problem, world, {line for lines in useful.values() for line in lines}):
        return _aside(name, "still_right", f"{error}: {rejected!r} is as good as {chosen!r}")
    span = [rejected.find(">") + 1, rejected.rfind("</")]
    return PreferencePair.make(
        prompt=messages[:at],
        chosen=chosen,
        rejected=rejected,
        source=f"wrong_turns/{'answer' if extract_answer(chosen) is not None else 'search'}",
        problem=problem.id,
        margin=1.0,
        columns={
            "group": problem.lineage.get("root", problem.id),
            "error": {"type": error, "span": span, "severity": SEVERITY[error]},
        },
        split=problem.split,
    )


def _aside(name: str, reason: str, evidence: str) -> Quarantined:
    return Quarantined(id=name, stage="preferences", reason=reason, evidence=evidence)


def evidence(messages: Sequence[Message], world: World) -> dict[int, list[str]]:
    """Turn -> the passages it found that name both what it asked about and something new that a later turn uses.

    A turn that is missing here was a detour, an answer, or a search that found nothing of use.
    """
    question = set(world.mentions(next(m.content for m in messages if m.role == "user")))
    turns, out = _turns(messages), {}
    for i in turns:
        query = _QUERY.search(messages[i].content)
        if query is None or i + 1 == len(messages):
            continue
        named, later = set(world.mentions(query[1])), [_payload(messages[j].content) for j in turns if j > i]
        used = {_key(e) for text in later for e in world.mentions(text) if e not in question | named}
        used |= {_key(answer) for m in messages[-1:] if (answer := extract_answer(m.content))}
        lines = messages[i + 1].content.split("\n")
        out[i] = [x for x in lines if any(_key(a) in _key(x) for a in named) and any(u in _key(x) for u in used)]
    return {i: lines for i, lines in out.items() if lines}


def _wrong(
    error: str, before: Sequence[Message], chosen: str, problem: Problem, world: World, rng: Random
) -> str | None:
    """A wrong turn in the place of `chosen`, or None if there is no alternative."""
    seen = world.mentions("\n".join(m.content for m in before if m.role in ("user", "tool")))
    if error in ("wrong_answer", "premature_answer"):
        other = [n for n in seen if _key(n) != _key(problem.answer)]
        alike = [n for n in other if seen[n] == world.mentions(problem.answer).get(problem.answer)]
        numbers = [n for m in before if m.role == "tool" for n in re.findall(r"\d+", m.content) if n != problem.answer]
        if problem.answer.isdigit():
            numbers = sorted(set(numbers)) or [str(int(problem.answer) + 1)]
            return f"{OPEN}{rng.choice(numbers)}{CLOSE}"
        return f"{OPEN}{rng.choice(alike or other)}{CLOSE}" if other else None
    query = _payload(chosen)
    if error == "wrong_relation":
        labels = [x for x in world.labels if re.search(rf"\b{re.escape(x)}\b", query)]
        if not labels:
            return None
        old = max(labels, key=len)
        new = rng.choice([x for x in world.labels if x != old] or [old])
    else:
        named = world.mentions(query)
        if not named:
            return None
        old = list(named)[-1]
        near = [n for n in seen if n not in named and seen[n] == named[old]]
        new = rng.choice(near or [n for n in world.by_type[named[old]] if n not in named] or [old])
    swapped = re.sub(rf"\b{re.escape(old)}\b", lambda _: new, query, flags=re.IGNORECASE)
    return f"<search>{swapped}</search>"


def _still_right(turn: str, problem: Problem, world: World, needed: set[str]) -> bool:
    answer = extract_answer(turn)
    if answer is None:
        return bool(needed & set(world.search(_payload(turn)).split("\n")))
    verdict = verify(problem, answer)
    return not isinstance(verdict, Scored) or verdict.value > 0


def _turns(messages: Sequence[Message]) -> list[int]:
    return [i for i, m in enumerate(messages) if m.role == "assistant"]


def _payload(turn: str) -> str:
    """The query or the answer inside a turn."""
    query = _QUERY.search(turn)
    return query[1] if query else extract_answer(turn) or ""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _key(text: str) -> str:
    """Words between spaces, so that `in` compares whole words."""
    return f" {' '.join(_words(text))} "
