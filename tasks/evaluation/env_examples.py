"""Three worked examples of an environment: what the model sees, a right way through and its reward, and a wrong one.

Nothing is stored: problems are drawn from a family that the environment plays, and both ways are played in it. Who plays rightly is a
program that knows the reference and the environment's rules, who plays wrongly another. Environments of the user's own have no such
programs; they are shown with the answers of their problems alone, where `espalier env audit` finds some.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from synth.types import Message, Problem, Scored
from synth.verify._home import SILENCE, rating, read
from synth.verify.rewriting import follow
from tasks.core.errors import UserError

Turn = Callable[[Problem, dict, str, int], str]  # (problem, state of the environment, what was said last, turn) -> text
MANY = 60  # turns after which a way has no end
LATER = {
    "propose": "what a proposal is worth is known once it was certified and tried"
}  # the environment itself pays nothing


@dataclass(frozen=True)
class Way:
    """Turns of the model and what was said to each, in order; value: the reward."""

    talk: tuple[tuple[str, tuple[str, ...]], ...]
    value: float
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Example:
    problem: Problem
    shown: tuple[Message, ...]
    right: Way
    wrong: Way


@dataclass(frozen=True)
class Known:
    """family: which draws the problems, or the problems themselves. knobs: of the environment."""

    family: str | Callable[[int], Problem]
    right: Turn
    wrong: Turn
    knobs: Mapping[str, Any]


def examples(name: str, n: int = 3) -> list[Example]:
    """Up to n examples, of problems that tell the two ways apart (of some, such as a sale without profit, both earn the same). Raises
    UserError for an environment that is not the project's own."""
    if name not in KNOWN:
        raise UserError(
            f"the environment {name} is not one of the project's own, so nobody knows what is right in it: see what its reward "
            f"does by `espalier env audit {name}`"
        )
    known = KNOWN[name]
    env = getattr(importlib.import_module(f"training.env.{name}"), name)(**known.knobs)
    out: list[Example] = []
    problems = _problems(known, name, 4 * n)
    for p in problems:
        other = next((q.answer for q in problems if q.answer != p.answer), "")
        p = replace(p, lineage={**p.lineage, "other": other})
        right, shown = _play(env, p, known.right)
        wrong, _ = _play(env, p, known.wrong)
        if right.value > wrong.value or name in LATER:
            out.append(Example(p, shown, right, wrong))
        if len(out) == n:
            break
    return out


def lines(name: str, n: int = 3) -> list[str]:
    """`examples` as text. Raises UserError as they do."""
    shown = examples(name, n)
    out = (
        [f"Played with {', '.join(f'{k} {v}' for k, v in KNOWN[name].knobs.items())}", ""] if KNOWN[name].knobs else []
    )
    for i, example in enumerate(shown, 1):
        out += [*([""] if i > 1 else []), f"Example {i}"]
        for m in example.shown:
            out += _line(m.role, m.content)
        for title, way in (("right", example.right), ("wrong", example.wrong)):
            out.append(f"  {title}: {LATER.get(name, f'reward {way.value:.4g}')}")
            for turn, told in way.talk:
                out += [*_line("model", turn), *(line for text in told for line in _line("told", text))]
    return out


def _line(who: str, text: str, most: int = 600) -> list[str]:
    first, *rest = (text if len(text) <= most else f"{text[:most]} ...").splitlines() or [""]
    return [f"    {who:<6} {first}", *(f"    {'':<6} {line}".rstrip() for line in rest)]


def _problems(known: Known, env: str, n: int) -> list[Problem]:
    """Up to n different problems."""
    if callable(known.family):
        drawn = [known.family(i) for i in range(n)]
    else:
        make = getattr(importlib.import_module(f"synth.families.{known.family}"), known.family)
        drawn = [p for i in range(2 * n) if isinstance(p := make(0, "train", i), Problem)]
    return list({p.id: replace(p, env=env) for p in drawn}.values())[:n]


def _play(env: Any, problem: Problem, turn: Turn) -> tuple[Way, tuple[Message, ...]]:
    """Raises ValueError where the way does not end in a score."""
    state, shown = env.start(problem, _tools(problem))
    heard, talk = shown[-1].content, []
    for t in range(MANY):
        text = turn(problem, state, heard, t)
        state |= {"segment": None, "prompt_tokens": 0} if getattr(env, "live", False) else {}
        told, over, score = env.step(state, text)
        history = state.pop("history", None)
        told = told or (history[-1:] if history else [])
        talk.append((text, tuple(m.content for m in told)))
        heard = told[-1].content if told else heard
        if over and isinstance(score, Scored):
            return Way(tuple(talk), score.value, score.parts), tuple(shown)
    raise ValueError(f"problem {problem.id} has no score after {MANY} turns")


def _tools(problem: Problem) -> dict[str, Any]:
    from synth.external.parent import begin
    from synth.scenes import draw
    from training.env.tool import Tool

    def compute(code: str = "", **more: Any) -> str:
        return problem.answer

    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    return {
        "search": lambda query: problem.lineage.get("passage", "nothing found"),
        "python": Tool(name="python", description="Runs Python.", parameters=schema, run=compute),
        "programs": _Program,
        "external": begin,
        "draw": draw,
        "page": draw,  # what is printed has no pictures
    }


class _Program:
    """An agent program that asks the problem's question once and answers what the model said."""

    def __init__(self, knobs: Any, problem: Problem) -> None:
        self.problem, self.text = problem, ""

    def next(self) -> Any:
        from synth.verify import extract_answer
        from training.env.program import Asked, Ended

        return Ended(answer=extract_answer(self.text)) if self.text else Asked(messages=self.problem.prompt)

    def reply(self, text: str, *more: Any) -> None:
        self.text = text


# --- who plays -----------------------------------------------------------------------------------------------------------


def _said(text: str) -> str:
    return f"<answer>{text}</answer>"


def _answer(p: Problem, state: dict, heard: str, turn: int) -> str:
    return _said(p.answer)


def _other(p: Problem, state: dict, heard: str, turn: int) -> str:
    return _said(p.lineage["other"])


def _slip(p: Problem, state: dict, heard: str, turn: int) -> str:
    """The proof with a step that no equation makes, and the rest as it was."""
    first, second, *rest = p.answer.split(" = ")
    reached = set(follow(first, p.args["equations"]))
    slips = (second[:i] + c + second[i + 1 :] for i in range(len(second)) for c in "abc")
    return _said(" = ".join([first, next(w for w in slips if w not in {first, *reached}), *rest]))


def _after(*first: Turn, then: Turn = _answer) -> Turn:
    """These turns, and then the last one's."""
    return lambda p, state, heard, turn: (first[turn] if turn < len(first) else then)(p, state, heard, turn)


def _always(text: str) -> Turn:
    return lambda p, state, heard, turn: text


def _call(name: str, argument: str, of: Callable[[Problem], str]) -> Turn:
    return lambda p, state, heard, turn: (
        f"<tool_call>{json.dumps({'name': name, 'arguments': {argument: of(p)}}, ensure_ascii=False)}</tool_call>"
    )


def _formula(p: Problem) -> str:
    return p.question.removeprefix("Compute ").rstrip(".")


def _telling(p: Problem, state: dict, heard: str, turn: int) -> str:
    """Asks what leaves the fewest things, and names the last."""
    things, left = state["things"], state["left"]
    if len(left) == 1:
        return _said(left[0])
    target = things[p.answer]
    words = sorted({w for t in left for w in things[t]})
    return f"<ask>{min(words, key=lambda w: sum((w in things[t]) == (w in target) for t in left))}</ask>"


def _hold(p: Problem, state: dict, heard: str, turn: int) -> str:
    times = int(re.findall(r"at most (\d+) times", p.question)[0])
    return "<say>hold</say>" if turn < times else "<say>accept</say>"


def _best_move(p: Problem, state: dict, heard: str, turn: int) -> str:
    total = 0
    for h in state["heaps"]:
        total ^= h
    j, h = next((j, h) for j, h in enumerate(state["heaps"], 1) if h ^ total < h)
    return f"<move>{h - (h ^ total)} from heap {j}</move>"


def _bad_move(p: Problem, state: dict, heard: str, turn: int) -> str:
    heaps = state["heaps"]
    tries = [f"1 from heap {j}" for j, h in sorted(enumerate(heaps, 1), key=lambda x: -x[1]) if h]
    return f"<move>{next((x for x in tries if turn or x != p.answer), tries[0])}</move>"


def _rule(p: Problem, state: dict, heard: str, turn: int) -> str:
    """Accuse all the guilty, and as many innocent as the judge will bear."""
    from synth.families.persuasion import read

    k, n, a, b = read(p.question)
    mu, tau = Fraction(k, n), Fraction(a, b)
    return f"<rule>1 {min(Fraction(1), mu * (1 - tau) / (tau * (1 - mu)))}</rule>"


def _requested(p: Problem, state: dict, heard: str, turn: int) -> str:
    """The call that the last request asks for; results of earlier ones are found in the state's record."""
    name, a, b = re.findall(r"Request \d+: (\w+) (.+?) and (.+?)\.", heard)[-1]
    known = p.lineage["solution"].partition("<answer>")[0].split(", ")
    value = lambda x: x if re.fullmatch(r"-?\d+", x) else known[turn - 1 if "last" in x else _number(x) - 1].strip()
    return f"<progress>results so far: {', '.join(known[:turn]).strip() or 'none'}</progress><call>{name}({value(a)}, {value(b)})</call>"


def _remembered(keep: bool) -> Turn:
    """Keeps what a part tells beside the memory, or nothing, and answers at the end."""

    def turn(p: Problem, state: dict, heard: str, turn: int) -> str:
        if "That was all" in heard:
            return f"<answer>{p.answer if keep else 'nowhere'}</answer>"
        known = heard.partition("Memory: ")[2].partition(". ")[0].replace("none", "")
        new = heard.partition(": ")[2].rpartition(": ")[2]
        return f"<memory>{f'{known} {new}'.strip() if keep else 'nothing'}</memory>"

    return turn


def _overseen(p: Problem, state: dict, heard: str, turn: int) -> str:
    """The calls that were requested, and as the verifier what is true of them."""
    if state["speaker"] == "generator":
        return _requested(p, state, heard, turn).partition("</progress>")[2]
    words = ["right" if x else "wrong" for x in state["right"]]
    return f"<steps>{' '.join(words)}</steps><final>{'right' if all(state['right']) else 'wrong'}</final>"


def _reworded(p: Problem, state: dict, heard: str, turn: int) -> str:
    return f"<answer>{state['asked']}</answer>"


def _number(text: str) -> int:
    return int(re.findall(r"\d+", text)[-1])


def _at_home(best: bool) -> Turn:
    def turn(p: Problem, state: dict, heard: str, turn: int) -> str:
        m = read(p.question)
        assert m is not None
        action = (max if best else min)([*m.likes, SILENCE], key=lambda a: rating(m, a)["rating"])
        return "<silent/>" if action == SILENCE else f"<say>{action}</say>"

    return turn


def _halving(p: Problem, state: dict, heard: str, turn: int) -> str:
    low, high = state.setdefault("between", (1, 31))
    if turn:
        guess = state["guess"]
        low, high = (guess + 1, high) if heard.startswith("higher") else (low, guess - 1)
    state["between"], state["guess"] = (low, high), (low + high) // 2
    return _said(str(state["guess"]))


def _tests(p: Problem, state: dict, heard: str, turn: int) -> str:
    lines = [f"f({x[0]}) == {y}" for x, y in zip(p.args["inputs"][:3], p.args["expected"], strict=False)]
    return f"<tests>{chr(10).join(lines)}</tests>"


def _needed(form: str) -> Turn:
    return lambda p, state, heard, turn: form.format(p.answer)


def _wrong_need(p: Problem, state: dict, heard: str, turn: int) -> str:
    from synth.families.hidden_needs import WORDINGS

    needs = [x.partition(": ")[0] for x in WORDINGS.read(p.question)["needs"].split("; ")]
    return f"<advise>{next(x for x in needs if x != p.answer)}</advise>"


def _half(p: Problem, state: dict, heard: str, turn: int) -> str:
    return f"I see: {heard.partition(': ')[2]}"


def _asked_back(p: Problem, state: dict, heard: str, turn: int) -> str:
    return f"<consult>{p.question}</consult>"


def _errand(i: int) -> Problem:
    from synth.families.errands import errands

    drawn = errands(0, "train", i, env="corridor")
    assert isinstance(drawn, Problem)
    return drawn


def _together(i: int) -> Problem:
    from synth.families.teamwork import teamwork

    drawn = teamwork(0, "train", i, rules=[("down", "last", "top")[i % 3]], env="team")
    assert isinstance(drawn, Problem)
    return drawn


def _shared(i: int) -> Problem:
    from synth.families.alternating_offers import alternating_offers

    drawn = alternating_offers(0, "train", i, asks=["offer"], env="offers")
    assert isinstance(drawn, Problem)
    return drawn


def _haggled(right: bool) -> Turn:
    """The equilibrium, or as little as can be offered and as much as is offered refused."""

    def turn(p: Problem, state: dict, heard: str, turn: int) -> str:
        pie, t = state["pie"], state["round"]
        if pie.offered_by_you(t):
            return f"<offer>{pie.keeps(t + 1) if right else 0}</offer>"
        return f"<reply>{'accept' if right else 'refuse'}</reply>"

    return turn


def _plan(i: int) -> Problem:
    from synth.families.tool_pipelines import tool_pipelines

    drawn = tool_pipelines(0, "train", i, levels=[2], env="assemble")
    assert isinstance(drawn, Problem)
    return drawn


def _demonstrated(p: Problem, state: dict, heard: str, turn: int) -> str:
    return p.lineage["demonstration"][turn]


def _screen_of(asks: str, env: str) -> Callable[[int], Problem]:
    def problem(i: int) -> Problem:
        from synth.families.screen_tasks import screen_tasks

        drawn = screen_tasks(0, "train", i, asks=[asks], env=env)
        assert isinstance(drawn, Problem)
        return drawn

    return problem


def _acting(p: Problem, state: dict, heard: str, turn: int) -> str:
    """The next action of the reference."""
    return f"<act>{p.answer.split('; ')[turn]}</act>"


def _towards(p: Problem, state: dict, heard: str, turn: int) -> str:
    """One move to the target, and a stop."""
    left, top, *_ = map(int, p.answer.split())
    way = left // 8 - state["screen"].cursor[0], top // 8 - state["screen"].cursor[1]
    sides = (("left", "right"), ("up", "down"))
    told = [f"{names[d > 0]} {abs(d)}" for names, d in zip(sides, way, strict=True) if d]
    return f"<move>{' '.join(told)}</move>" if told else "<stop/>"


def _guess(i: int) -> Problem:
    from synth.external.parent import problem

    entry = {"adapter": "file", "path": str(Path(__file__).parents[2] / "synth/external/example_turns.py")}
    drawn = problem(entry, 0, "train", i)
    assert isinstance(drawn, Problem)
    return drawn


def _place(i: int) -> Problem:
    place, person = (("Velka", "Ada Orn"), ("Brenn", "Bo Lind"), ("Tulm", "Cleo Varga"), ("Ost", "Dag Roth"))[i % 4]
    return Problem.make(
        prompt=f"Who is the mayor of {place}?",
        answer=person,
        verifier="exact",
        env="search",
        family="places",
        split="train",
        lineage={"root": place, "passage": f"{place} is a town by a river. Its mayor is {person}."},
    )


def _far(i: int) -> Problem:
    from synth.families.scene_questions import scene_questions

    drawn = scene_questions(0, "train", i, levels=[4], asks=["shape"])
    assert isinstance(drawn, Problem)
    return drawn


_SUMS = "integer_arithmetic"
KNOWN: dict[str, Known] = {
    name: Known(family, right, wrong, knobs)
    for name, family, right, wrong, knobs in (
        ("ask", "twenty_questions", _telling, _other, {}),
        ("bargain", "bargains", _hold, _always("<say>accept</say>"), {}),
        ("calculator", _SUMS, _after(_call("calculator", "expression", _formula)), _other, {}),
        ("assemble", _plan, _demonstrated, lambda p, state, heard, turn: state["plan"][:1] and "done" or "upper", {}),
        ("corridor", _errand, _demonstrated, _always("<move>stay</move>"), {}),
        ("team", _together, _demonstrated, _always("<act>nothing</act>"), {}),
        ("offers", _shared, _haggled(True), _haggled(False), {}),
        ("curious", "twenty_questions", _telling, _other, {}),
        ("diagnose", "twenty_questions", _telling, _other, {}),
        ("expert", _SUMS, _after(_asked_back), _other, {}),
        ("external", _guess, _halving, _always("<answer>0</answer>"), {}),
        ("frames", "clip_questions", _after(_always("<frames>1 2</frames>")), _other, {}),
        ("game", "nim_heaps", _best_move, _bad_move, {}),
        ("goods", _SUMS, _answer, _other, {}),
        ("halves", _SUMS, _after(_half), _after(_half, then=_other), {}),
        ("home", "home_moments", _at_home(True), _at_home(False), {}),
        ("look", "scene_questions", _answer, _other, {}),
        ("page", _screen_of("point", "page"), _answer, _other, {}),
        ("point", _screen_of("point", "point"), _towards, _always("<stop/>"), {}),
        ("screen", _screen_of("steps", "screen"), _acting, _always("<act>wait</act>"), {}),
        ("focus", _far, _after(_always("<box>0 0</box>")), _after(_always("<box>0 0</box>"), then=_other), {}),
        ("perceive", "scene_questions", _answer, _other, {}),
        ("reflect", "scene_questions", _answer, _other, {}),
        ("reader", "scattered_facts", _remembered(True), _remembered(False), {}),
        ("overseen", "chained_requests", _overseen, _always("<call>add(0, 0)</call>"), {}),
        ("persuade", "persuasion", _rule, _always("<rule>1 1</rule>"), {}),
        ("program", _SUMS, _answer, _other, {}),
        ("progress", "chained_requests", _requested, _always("<call>add(0, 0)</call>"), {}),
        ("propose", _SUMS, _needed("<answer>a problem with the answer {}</answer>"), _always("a problem"), {}),
        ("python", _SUMS, _after(_call("python", "code", lambda p: f"print({_formula(p)})")), _other, {}),
        (
            "retry",
            "rewrite_proofs",
            _after(_slip),
            _slip,
            {"checker": True, "most": 2, "gamma": 1.0, "repeat": 0.0, "missing": 0.1},
        ),
        ("rewatch", "clip_questions", _answer, _other, {}),
        ("rewording", "safety_requests", _reworded, _always("<answer>Good morning.</answer>"), {}),
        ("route", _SUMS, _answer, _always("<search>Nobody: what is it?</search>"), {}),
        ("search", _place, _after(_needed("<search>mayor</search>")), _other, {}),
        ("second_look", _SUMS, _answer, _other, {}),
        ("single", _SUMS, _answer, _other, {}),
        ("sql", "text_to_sql", _after(_call("sql", "query", lambda p: p.answer)), _other, {}),
        ("tools", _SUMS, _after(_call("calculator", "expression", _formula)), _other, {"use": ["calculator"]}),
        (
            "user",
            "hidden_needs",
            _after(_always("<ask/>"), _needed("<acknowledge>{}</acknowledge>"), then=_needed("<advise>{}</advise>")),
            _wrong_need,
            {},
        ),
        ("wait", _SUMS, _answer, _other, {}),
        (
            "walk",
            "grid_navigation",
            _needed("<move>{}</move>"),
            lambda p, state, heard, turn: f"<move>{p.answer[::-1]}</move>",
            {},
        ),
        (
            "workflow",
            _SUMS,
            _after(_always("<plan>generate</plan>"), then=_always("<answer>generate*3 ensemble</answer>")),
            _always("<answer>ensemble</answer>"),
            {},
        ),
        ("write_and_test", "python_functions", _after(_answer, _tests), _after(_other, _tests, then=_other), {}),
    )
}
