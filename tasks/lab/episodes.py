"""Small worlds in which the environments themselves are played: what arena.py is for single answers, for recipes of
conversations.

A world says what the base policy says next, given the problem and what it heard last. Episodes of it are played in the
real environment and learned by a model of two layers, which is then the policy that recipes start from. Which knobs the
environment has is the recipe's business (`rl.envs`); a world names those that its demonstrations are played with.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, permutations, product
from random import Random
from typing import Any

import numpy as np

from synth.families import matrix_games
from synth.families.errands import errands
from synth.families.safety_requests import DISGUISES, HARMLESS, REFUSE, UNSAFE, asked
from synth.families.tool_pipelines import tool_pipelines
from synth.families.translations import translations
from synth.types import Message, Problem, Sampling, Score, Scored, seed_for
from synth.verify import verify
from synth.verify.pipeline import TOOLS, misfit
from tasks.lab.arena import Arena, World, answer
from tasks.planning.parts import TURN, gives
from tasks.planning.pieces import files, locate
from training.env import Env
from training.env.ask import ask
from training.env.assemble import assemble
from training.env.bargain import bargain
from training.env.corridor import corridor
from training.env.curious import curious
from training.env.diagnose import diagnose
from training.env.expert import expert
from training.env.goods import goods
from training.env.halves import halves
from training.env.overseen import overseen
from training.env.persuade import persuade
from training.env.progress import progress
from training.env.retry import retry
from training.env.rewording import rewording
from training.env.route import route
from training.env.search import search
from training.env.second_look import second_look
from training.env.single import Single, single
from training.env.tools import tools
from training.env.user import user
from training.env.wait import wait
from training.env.workflow import workflow
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rl.reward.guard import unsafe as classified
from training.rl.reward.typed_units import units
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Group

Says = Callable[[Problem, int, str], Mapping[str, float]]
EPISODES = 16  # of each problem and environment, from which the base policy is learned
TYPES = ("observation", "motivation")


@dataclass(frozen=True)
class Stage:
    """problems; what the base policy says in its t-th turn (from 0) when it last heard `heard`: texts with weights; the
    environments that it is shown, and others that problems may be moved to, by name; tools that environments ask
    for; the last `held` problems are measured and never trained on."""

    problems: tuple[Problem, ...]
    says: Says
    shown: tuple[Env, ...]
    envs: Mapping[str, Env]
    tools: Mapping[str, Any] = field(default_factory=dict)
    held: int = 0


@dataclass(frozen=True)
class Noted(Single):
    """One question, one answer, and whether the working before it is a flow: parts `units` (how many), `flow` (as
    typed_units has it)."""

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            written = units(text, TYPES)
            flow = (
                (float(written[:1] == [TYPES[0]]) + float(all(a != b for a, b in pairwise(written)))) / 2
                if written
                else 0.0
            )
            score = Scored(value=score.value, parts={**score.parts, "units": float(len(written)), "flow": flow})
        return reply, over, score


@dataclass(frozen=True)
class Readings(Single):
    """Up to four calls, each a search or a page, then one answer. Part `kept`: something was searched, a page was
    opened right after every search, and the answer is right."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        state, messages = super().start(problem, tools)
        return {**state, "acts": ""}, messages

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        act = {"<search>": "s", "<open>": "o"}.get(text[: text.find(">") + 1])
        if act and len(state["acts"]) < 4:
            state["acts"] += act
            return [Message(role="tool", content=f"t{len(state['acts'])}")], False, None
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            acts = state["acts"]
            read = "s" in acts and not acts.replace("so", "o").count("s")
            score = Scored(value=score.value, parts={**score.parts, "kept": float(read and score.value == 1.0)})
        return reply, over, score


def _problem(prompt: str, right: str, env: str, verifier: str = "exact", **more: Any) -> Problem:
    return Problem.make(
        prompt=prompt, answer=right, verifier=verifier, env=env, family=more.pop("family", env), split="train", **more
    )


def _even(*texts: str) -> dict[str, float]:
    return dict.fromkeys(texts, 1.0)


def again() -> Stage:
    """Eight questions with up to three answers each, of four that are equally likely; half of the questions have no
    right one among them."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i // 2] if i % 2 else "z", "retry") for i, x in enumerate("bcdfghjk"))
    host = retry(most=3)
    return Stage(problems, lambda p, t, heard: _even(*map(answer, "bcdf")), (host,), {"retry": host})


def notes() -> Stage:
    """Six chains of three requests. The third needs the result of the first; a policy that sees it calls
    rightly 8 times in 10, else 2 times. Notes that hold it are written half the time."""
    chains = [(2, 3, 1, 4), (1, 1, 5, 2), (4, 4, 2, 1), (6, 1, 3, 3), (5, 4, 1, 1), (2, 1, 4, 2)]
    template = (
        "Request 1: add {} and {}. Request 2: add {} and {}. Request 3: add result 1 and {}. What is the last result?"
    )
    problems = tuple(_problem(template.format(a, b, c, d, c), str(a + b + c), "progress") for a, b, c, d in chains)

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        a, b, c, d = chains[problems.index(p)]
        if t == 0:
            return _even(f"<call>add({a}, {b})</call>")
        if t == 1:
            call = f"<call>add({c}, {d})</call>"
            return _even(call, f"<progress>r{a + b}</progress>{call}")
        knows = 0.8 if f"notes: r{a + b}." in heard or "notes" not in heard else 0.2
        wrong = [f"<call>add({x}, {c})</call>" for x in range(2, 10) if x != a + b]
        return {f"<call>add({a + b}, {c})</call>": knows} | dict.fromkeys(wrong, (1 - knows) / len(wrong))

    shown = progress(replace=True), progress(replace=False)
    return Stage(problems, says, shown, {"progress": shown[0]})


def moods() -> Stage:
    """Four people with a need of two; whoever answers them asks, praises, acknowledges and advises, rightly half the
    time."""
    needs = [("rest", "hope"), ("hope", "rest")]
    signs = {"rest": ("pale", "tired"), "hope": ("sad", "lost")}
    problems = tuple(
        _problem(
            f"Needs and their signs: rest: pale tired; hope: sad lost. Somebody is {signs[n][k]} and {signs[n][1 - k]}. What is needed?",
            n,
            "user",
        )
        for n, _ in needs
        for k in range(2)
    )
    acts = {"<ask/>": 2.0, "<praise/>": 3.0} | {
        f"<{act}>{n}</{act}>": 1.0 for act in ("acknowledge", "advise") for n in signs
    }
    host = user(turns=4)
    return Stage(problems, lambda p, t, heard: acts, (host,), {"user": host})


_THINGS = "bo: red; da: soft; fe: red soft; gu: old"


def _things(env: str) -> tuple[Problem, ...]:
    return tuple(
        _problem(f"{_THINGS}. Is it red? no. Which one is it?", name, env) for name in ("bo", "da", "fe", "gu")
    )


def _guesses(*more: str) -> dict[str, float]:
    return {f"<ask>{w}</ask>": 2.0 for w in ("red", "soft", *more)} | {answer(x): 1.0 for x in ("bo", "da", "fe", "gu")}


def records() -> Stage:
    """Four records that look alike from outside; questions and diagnoses come at random, and the same question may come
    again."""
    host = diagnose(budget=5)
    return Stage(_things("diagnose"), lambda p, t, heard: _guesses(), (host,), {"diagnose": host})


def strangers() -> Stage:
    """Four people who look alike from outside: who it is shows only in their answers, and guesses come at random."""
    host = curious(most=3)
    return Stage(_things("curious"), lambda p, t, heard: _guesses(), (host,), {"curious": host})


def guessing() -> Stage:
    """As `strangers`, where nothing but the name is paid."""
    host = ask(most=3)
    return Stage(_things("ask"), lambda p, t, heard: _guesses(), (host,), {"ask": host})


def consults() -> Stage:
    """Six questions, three in ten of whose answers are right, and an expert who is asked half the time and is always
    right."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "expert") for i, x in enumerate("bcdfgh"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        if t:  # he has answered, or is not there any more
            return {answer(p.answer): 0.95} | ({"<consult>?</consult>": 0.05} if t == 1 else {})
        alone = {answer(x): 0.5 * (0.3 if x == p.answer else 0.7 / 3) for x in "bcdf"}
        return alone | {"<consult>?</consult>": 0.5}

    host = expert(most=2)
    return Stage(problems, says, (host,), {"expert": host, "single": single()})


def prices() -> Stage:
    """Six questions and two models that are both always right, one ten times as expensive as the other; who answers alone is
    right half the time."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "route") for i, x in enumerate("bcdfgh"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        if t and heard.startswith("It is"):
            return {answer(p.answer): 1.0}
        others = [x for x in "bcdf" if x != p.answer]
        return {"<search>Ada: ?</search>": 0.4, "<search>Dov: ?</search>": 0.4, answer(p.answer): 0.1} | {
            answer(x): 0.1 / 3 for x in others
        }

    host = route(most=2, pool=[["Ada", 1.0, "small", {"*": 1.0}], ["Dov", 10.0, "large", {"*": 1.0}]])
    return Stage(problems, says, (host,), {"route": host})


def plans() -> Stage:
    """Three easy questions, which one solver gets right 95 times in a hundred, and three hard ones (55 times); plans of
    three sizes."""
    problems = tuple(
        _problem(f"q{x}", "1", "workflow", difficulty={"level": 1 + 2 * (i % 2)}) for i, x in enumerate("bcdfgh")
    )
    texts = _even(*(answer(x) for x in ("generate", "generate*3 ensemble", "generate*5 review ensemble")))
    host = workflow(rounds=1)
    return Stage(problems, lambda p, t, heard: texts, (host,), {"workflow": host})


def schemes() -> Stage:
    """Twelve questions of three levels, which their last word tells, three of them held out (one of each level). Five plans, all as
    likely on every question; four times in ten a plan is tried first, and its result is seen."""
    named = [(x, i, word) for x in "bcdf" for i, word in enumerate(("plain", "long", "deep"), 1)]
    problems = tuple(_problem(f"q {x} {word}", "1", "workflow", difficulty={"level": i}) for x, i, word in named)
    wanted = ("generate", "generate review", "generate*3 ensemble", "generate*3 test", "generate*5 review ensemble")

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        final = {answer(x): (1.0 if t else 0.6) / len(wanted) for x in wanted}
        return final if t else final | {f"<plan>{wanted[0]}</plan>": 0.4}

    host = workflow(rounds=2)
    return Stage(problems, says, (host,), {"workflow": host}, held=3)


def flows() -> Stage:
    """Eight questions, four in ten of whose answers are right; half of them stand alone, the others after one of three
    kinds of working."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "noted") for i, x in enumerate("bcdfghjk"))
    o, m = (f"<{x}>z</{x}>" for x in TYPES)

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        before = {"": 0.5, o + m: 0.15, m + o: 0.15, o + o: 0.2}
        return {b + answer(x): share * (0.4 if x == p.answer else 0.2) for b, share in before.items() for x in "bcdf"}

    host = Noted(0.0, "")
    return Stage(problems, says, (host,), {"noted": host})


_BUYERS = [(10, 12, 4, 2), (8, 9, 3, 1), (5, 7, 2, 2), (9, 10, 5, 1)]


def _bargains() -> tuple[Problem, ...]:
    template = "You sell what cost you {}. The buyer offers {}, adds {} each time you hold, at most {} times, and then leaves. What is your best profit?"
    return tuple(_problem(template.format(*b), str(b[1] + b[2] * b[3] - b[0]), "bargain", "number") for b in _BUYERS)


def buyers() -> Stage:
    """Four buyers; sellers hold, accept and flatter alike, and ask and insult now and then."""
    acts = {
        f"<say>{x}</say>": w
        for x, w in (("hold", 3.0), ("accept", 3.0), ("flatter", 2.0), ("ask", 1.0), ("insult", 1.0))
    }
    host = bargain(turns=4)
    return Stage(_bargains(), lambda p, t, heard: acts, (host,), {"bargain": host})


def strategies() -> Stage:
    """As `buyers`, by strategies that an actor carries out."""
    acts = {
        f"<strategy>{x}</strategy>": w
        for x, w in (("firm", 3.0), ("close", 3.0), ("warm", 2.0), ("probe", 1.0), ("hard", 1.0))
    }
    host = bargain(turns=4, strategy=True)
    return Stage(_bargains(), lambda p, t, heard: acts, (host,), {"bargain": host})


def trails() -> Stage:
    """Six questions whose answer stands at the end of two searches. One thought in five rests on what was read,
    and leads to the search that goes on; the others lead to one that finds nothing, after which the answer is wrong."""
    problems = tuple(_problem(f"who leads {x}", f"Mr {'bcdf'[i % 4]}", "search") for i, x in enumerate("ghjkmn"))
    known = {x: f"{x} is in v{x}" for x in "ghjkmn"} | {f"v{p.question[-1]}": f"led by {p.answer}" for p in problems}

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        turn = lambda thought, then: f"<think><plan>{thought}</plan></think>{then}"
        if heard == "nothing" or t == 2:
            return _even(turn("z z", answer(p.answer if heard != "nothing" else "none")))
        name = ("v" if t else "") + p.question[-1]
        return {turn(heard, f"<search>{name}</search>"): 0.2, turn("z", "<search>z</search>"): 0.8}

    host = search(max_calls=2)
    find = lambda query: known.get(query.strip(), "nothing")
    return Stage(problems, says, (host,), {"search": host}, {"search": find})


def readers() -> Stage:
    """Six questions, six in ten of whose answers are right, after up to four calls: a search or a page alike, and one
    turn in five answers."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "readings") for i, x in enumerate("bcdfgh"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        left = 1.0 if t == 4 else 0.2
        calls = {} if t == 4 else {"<search>z</search>": 0.4, "<open>z</open>": 0.4}
        return calls | {answer(x): left * (0.6 if x == p.answer else 0.4 / 3) for x in "bcdf"}

    host = Readings(0.0, "")
    return Stage(problems, says, (host,), {"readings": host})


def velic() -> Stage:
    """Six sentences to be translated. Who does what to whom is right one time in four each, independently, so that a
    whole sentence is right one time in sixty-four; one text in ten has no thoughts before it."""
    drawn = (translations(0, "train", i) for i in range(12))
    problems = tuple(replace(p, env="single") for p in drawn if isinstance(p, Problem))[:6]
    others = [p.answer.split() for p in problems]  # the who does the what

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        own = p.answer.split()
        kinds = [[own[k], *[x for x in dict.fromkeys(o[k] for o in others) if x != own[k]][:3]] for k in (1, 2, 4)]
        texts = [answer(f"the {a} {b} the {c}") for a, b, c in product(*kinds)]
        return dict.fromkeys(("<think>so</think>" + x for x in texts), 0.9) | dict.fromkeys(texts, 0.1)

    host = single()
    return Stage(problems, says, (host,) * 4, {"single": host})


def velic_apart() -> Stage:
    """Twelve sentences to be translated and learned from, and four more of the same words. Each of three words is right one time in two, independently;
    each sentence carries its translation as a demonstration."""
    drawn = (translations(0, "train", i) for i in range(400))
    by_text = {
        p.answer: replace(p, env="single") for p in drawn if isinstance(p, Problem) and len(p.answer.split()) == 5
    }
    slots = lambda p: [p.answer.split()[k] for k in (1, 2, 4)]  # the who does the what
    every = sorted(by_text.values(), key=lambda p: p.answer)
    rng = np.random.default_rng(seed_for(0, "velic apart"))
    nouns, verbs = (
        set(rng.choice(sorted({x for p in every for x in slots(p)[a::2]}), n, replace=False))
        for a, n in ((0, 6), (1, 3))
    )
    few = [p for p in every if {slots(p)[0], slots(p)[2]} <= nouns and slots(p)[1] in verbs]
    few = [few[i] for i in rng.permutation(len(few))]
    train = few[:12]
    known = {x for p in train for x in slots(p)}
    held = [p for p in few[12:] if set(slots(p)) <= known][:4]
    thought = lambda text: "<think>so</think>" + answer(text)
    problems = tuple(replace(p, lineage={**p.lineage, "demonstration": [thought(p.answer)]}) for p in (*train, *held))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        own, out = slots(p), {}
        pools = (sorted(nouns), sorted(verbs), sorted(nouns))
        shares = [
            {x: 0.5 if x == right else 0.5 / (len(pool) - 1) for x in pool}
            for right, pool in zip(own, pools, strict=True)
        ]
        for a, b, c in product(*shares):
            share = shares[0][a] * shares[1][b] * shares[2][c]
            out |= {thought(f"the {a} {b} the {c}"): 0.9 * share, answer(f"the {a} {b} the {c}"): 0.1 * share}
        return out

    host = single()
    return Stage(problems, says, (host,) * 2, {"single": host}, held=len(held))


def assembly() -> Stage:
    """Sixteen plans of two or three tools, put together tool by tool, each of which is the right one half of the time, else any that fits.
    Four of them, whose tools the others have too, are measured and never trained on."""
    drawn = (tool_pipelines(0, "train", i, levels=[1, 2], env="assemble") for i in range(120))
    every = list({p.id: p for p in drawn if isinstance(p, Problem)}.values())
    by_plan = list({p.answer: p for p in every}.values())
    train = by_plan[:12]
    known = {x for p in train for x in p.answer.split()}
    held = [p for p in by_plan[12:] if set(p.answer.split()) <= known][:4]
    host = assemble(held=True)

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        now = heard.rpartition("Now: ")[2].rstrip(".")
        fits = [x for x, (takes, _, _) in TOOLS.items() if takes == now] + (["done"] if t else [])
        plan = [*p.answer.split(), "done"]
        right = plan[t] if t < len(plan) and plan[t] in fits else "done"
        return {x: 0.5 if x == right else 0.5 / (len(fits) - 1) for x in fits} if len(fits) > 1 else _even(*fits)

    return Stage((*train, *held), says, (host,), {"assemble": host}, held=len(held))


def planners() -> Stage:
    """Six tasks for plans of three tools. One plan in twelve is right, six run and give something else, five do not fit."""
    drawn = (tool_pipelines(0, "train", i, levels=[2]) for i in range(24))
    problems = tuple({p.id: replace(p, env="single") for p in drawn if isinstance(p, Problem)}.values())[:6]
    every = [list(x) for x in permutations(TOOLS, 3)]

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        rng = np.random.default_rng(seed_for(0, "planners", p.id))
        worth = lambda plan: verify(p, " ".join(plan))
        near = [x for x in every if len(set(x) & set(p.answer.split())) > 0 and " ".join(x) != p.answer]
        runs = [x for x in near if not misfit(x) and getattr(worth(x), "value", 1.0) < 1.0]
        broken = [x for x in near if misfit(x)]
        kept = [p.answer.split(), *(x[i] for x, n in ((runs, 6), (broken, 5)) for i in rng.permutation(len(x))[:n])]
        return _even(*(answer(" ".join(x)) for x in kept))

    host = single()
    return Stage(problems, says, (host,) * 4, {"single": host})


def essays() -> Stage:
    """The six tasks of the world of writers (tasks/lab/writer_worlds.py): words under five clauses, each in eight drafts that are as likely."""
    from tasks.lab.writer_worlds import _tasks, _texts

    host = single()
    return Stage(_tasks(), lambda p, t, heard: _even(*_texts(p)), (host,) * 2, {"single": host})


def corridors() -> Stage:
    """Two games of each of three partners, who are not named: those who go to the nearest parcel, to the lowest, and, never trained
    with, to the highest. Left, right and stay come at random."""
    problems = []
    for rule in ("nearest", "lowest", "highest"):
        drawn = (errands(0, "train", i, levels=[1], rules=[rule], env="corridor") for i in range(24))
        fits = [replace(p, family=rule) for p in drawn if isinstance(p, Problem) and 2 <= int(p.answer) <= 4]
        problems += list({p.id: p for p in fits}.values())[: 3 if rule == "highest" else 6]
    host = corridor(told=False)
    moves = _even(*(f"<move>{x}</move>" for x in ("left", "right", "stay")))
    return Stage(tuple(problems), lambda p, t, heard: moves, (host,), {"corridor": host}, held=3)


def errors() -> Stage:
    """Six games of four to six steps with a partner, each with its best moves as a demonstration. The policy keeps to them 45 times in
    a hundred, and plays alike wherever a mistake has led it."""
    drawn = (errands(0, "train", i, levels=[2], env="corridor") for i in range(60))
    fits = [p for p in drawn if isinstance(p, Problem) and 4 <= int(p.answer) <= 6]
    problems = tuple({p.id: p for p in fits}.values())[:6]
    host = corridor(told=False)

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        best = p.lineage["demonstration"]
        return {
            move: 0.45 if t < len(best) and move == best[t] else 0.275
            for move in (f"<move>{x}</move>" for x in ("left", "right", "stay"))
        }

    return Stage(problems, says, (host,), {"corridor": host})


def markets() -> Stage:
    """Four tables of payoffs. Trained on are the best responses of each, four to a table; measured are the four equilibria, which
    no trained problem asks for. A best response is right half of the time, as is each of the four that stand in the working of
    an equilibrium; the answer follows from them. One answer in ten has no thoughts."""
    of: dict[str, dict[str, tuple[str, str]]] = {}  # question -> choice -> the best response to it, and the other one
    responses, pairs = [], []
    for i in range(4):
        _, spec = matrix_games.draw(Random(seed_for(0, "markets", i)), choices=2, size=9)
        posed = [matrix_games.pose(("response", *spec[1:5], side, given)) for side in (0, 1) for given in (0, 1)]
        equilibrium = matrix_games.pose(("equilibrium", *spec[1:]))
        other = {x: y for names in spec[1:3] for x, y in (names, names[::-1])}
        steps = [x.split(": ") for x in equilibrium["working"].rstrip(".").split("; ")]
        for q in (*posed, equilibrium):
            own = q["working"].rstrip(".").split(": ")[0]
            of[q["prompt"]] = {x: (y, other[y]) for x, y in steps if q is equilibrium or x == own}
        responses += [_problem(q["prompt"], q["answer"], "single", family="response") for q in posed]
        pairs.append(_problem(equilibrium["prompt"], equilibrium["answer"], "single", family="equilibrium"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        best, out = of[p.question], {}
        for replies in product(*best.values()):
            chosen = dict(zip(best, replies, strict=True))
            rows = list(chosen)[2:]  # an equilibrium's working names what answers Column first
            stable = [f"{x} {chosen[x]}" for x in rows if chosen[chosen[x]] == x]
            final = replies[0] if len(best) == 1 else (stable or [f"{rows[0]} {chosen[rows[0]]}"])[0]
            out[f"<think>{'; '.join(f'{x}: {y}' for x, y in chosen.items())}</think>{answer(final)}"] = 0.9
            out[answer(final)] = out.get(answer(final), 0.0) + 0.1
        return out

    host = single()
    return Stage((*responses, *pairs), says, (host,) * 2, {"single": host}, held=len(pairs))


def readings_of_markets() -> Stage:
    """The tables of `markets` with their best responses, and questions that ask what a player gets where both have chosen, four to a
    table. Measured are the four equilibria, as there. A number is read rightly half of the time."""
    plain = markets()
    payoffs: dict[str, tuple[str, str]] = {}  # question -> the payoff, and another one of the table
    readings = []
    for i in range(4):
        _, spec = matrix_games.draw(Random(seed_for(0, "markets", i)), choices=2, size=9)
        _, rows, columns, a, b, *_ = spec
        told = "Row chooses {rows}, Column {columns}. Payoffs of Row and Column: {cells}".format(
            **matrix_games.table(spec)
        )
        for k, (r, c) in enumerate(product(range(2), range(2))):
            side = k % 2
            right, wrong = ((a, b)[side][r][c], (a, b)[side][1 - r][c])
            question = f"{told}. Row chooses {rows[r]}, Column {columns[c]}. What does {('Row', 'Column')[side]} get?"
            payoffs[question] = (str(right), str(wrong if wrong != right else right % 9 + 1))
            readings.append(_problem(question, str(right), "single", family="reading"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        if p.question not in payoffs:
            return plain.says(p, t, heard)
        return {
            text: share / 2
            for x in payoffs[p.question]
            for text, share in ((f"<think>{x}</think>{answer(x)}", 0.9), (answer(x), 0.1))
        }

    *responses, _, _, _, _ = plain.problems
    return replace(plain, problems=(*responses, *readings, *plain.problems[-4:]), says=says)


def shelves() -> Stage:
    """Three choices each of four people, of whom two and two take what the other leaves. The policy takes either thing, half of the time
    with working: of it two in three have the four tags in their order, one in three has them turned round."""
    things, tags = (("tea", "milk"), ("fig", "plum"), ("rice", "corn")), ("examine", "infer", "compare", "decide")
    problems = []
    for i, name in enumerate(("Ana", "Bo", "Cleo", "Dag")):
        likes = [pair[:: -1 if (i + (k if i > 1 else 0)) % 2 else 1] for k, pair in enumerate(things)]
        lineage = {"user": name, "chose": [list(x) for x in likes]}
        for pair, (taken, _) in zip(things, likes, strict=True):
            posed = _problem(f"{name} {pair[0]} or {pair[1]}", taken, "single")
            problems.append(replace(posed, lineage={**posed.lineage, **lineage}))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        spans = lambda order, x: "".join(f"<{tag}>{x if tag == 'decide' else 'z'}</{tag}>" for tag in order)
        out: dict[str, float] = {}
        for x in p.question.split()[1::2]:
            out |= {spans(tags, x) + answer(x): 2 / 12, spans(tags[::-1], x) + answer(x): 1 / 12, answer(x): 1 / 4}
        return out

    host = single()
    return Stage(tuple(problems), says, (host,) * 2, {"single": host})


def partners() -> Stage:
    """Six questions of which each of two agents sees half. What the first knows is said in few words or in many, and
    the second then answers rightly eight times in ten; one in five answers at once, rightly one time in four."""
    problems = tuple(
        _problem(f"q{x} {'bcdf'[i % 4]} what is it", "bcdf"[i % 4], "halves") for i, x in enumerate("bcdfgh")
    )

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        if t == 0:
            short = f"it {p.answer}"
            return {short: 0.4, " ".join([short] * 4): 0.4} | {answer(x): 0.05 for x in "bcdf"}
        return {answer(x): 0.8 if x == p.answer else 0.2 / 3 for x in "bcdf"}

    host = halves(turns=2)
    return Stage(problems, says, (host,), {"halves": host})


def shares() -> Stage:
    """Nine questions whose answer takes a word from each half, three of them held out. The first agent says his word, in few words or
    in many, or a wrong one, or answers without having heard the other's; the second answers with what he heard or asks again. Half of
    his answers say what he heard and what he holds."""
    pairs = sorted(product("bcd", "ghj"), key=lambda xy: "bcd".index(xy[0]) + "ghj".index(xy[1]) == 2)
    problems = tuple(_problem(f"q {x} then {y}", f"{x} {y}", "halves") for x, y in pairs)

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        x, y = p.answer.split()
        if t % 2 == 0:
            told = {f"it {x}": 0.35, " ".join([f"it {x}"] * 3): 0.25} | {f"it {w}": 0.1 for w in "bcd" if w != x}
            return told if t else told | {answer(f"{x} {w}"): 0.06 for w in "ghj"}
        h = heard.split()[-1]
        meant = {answer(f"{h} {y}"): 0.4} | {answer(f"{h} {w}"): 0.1 for w in "ghj" if w != y}
        meant |= {answer(f"{w} {y}"): 0.1 for w in "bcd" if w != h}
        return meant if t > 1 else meant | {"again": 0.25}

    host = halves(turns=4)
    return Stage(problems, says, (host,), {"halves": host}, held=3)


def commons() -> Stage:
    """Six questions and three agents. Half of the answers stand after four words of working, and of these eight in ten are
    right; of the others three."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "goods") for i, x in enumerate("bcdfgh"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        others = [x for x in "bcdf" if x != p.answer]
        shares = {" z z z z": 0.8, "": 0.3}
        right = {working + answer(p.answer): share for working, share in shares.items()}
        return right | {w + answer(x): (1 - share) / 3 for w, share in shares.items() for x in others}

    host = goods(most=4)
    return Stage(problems, says, (host,), {"goods": host})


def looks() -> Stage:
    """Eight questions, three in ten of whose answers are right; who hears the right answer says it six times in ten, who
    hears a wrong one answers as if alone."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "second_look") for i, x in enumerate("bcdfghjk"))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        sure = 0.6 if f"says {p.answer}." in heard else 0.3
        return {answer(x): sure if x == p.answer else (1 - sure) / 3 for x in "bcdf"}

    host = second_look(weight=0.5)
    return Stage(problems, says, (host,), {"second_look": host})


def overseers() -> Stage:
    """Six chains of two requests. Six calls in ten are right, the others ask for another operation. Who judges them afterwards
    says the truth of a call 65 times in a hundred, and of the whole what follows from its own words."""
    chains = [(2, 3, 4), (5, 1, 2), (4, 4, 3), (6, 2, 2), (3, 5, 3), (7, 1, 5)]
    template = "Request 1: add {} and {}. Request 2: multiply result 1 and {}. What is the last result?"
    problems = tuple(
        _problem(template.format(a, b, c), str((a + b) * c), "overseen", family="chained_requests")
        for a, b, c in chains
    )
    host = overseen()

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        a, b, c = chains[problems.index(p)]
        calls = (f"add({a}, {b})", f"multiply({a + b}, {c})")
        if t < 2:
            return {
                f"<call>{calls[t]}</call>": 0.6,
                f"<call>{calls[t].replace(calls[t].partition('(')[0], 'subtract')}</call>": 0.4,
            }
        told: dict[str, float] = {}
        for words in product(("right", "wrong"), repeat=2):
            true = [(call in heard) == (word == "right") for call, word in zip(calls, words, strict=True)]
            whole = "right" if words == ("right", "right") else "wrong"
            told[f"<steps>{' '.join(words)}</steps><final>{whole}</final>"] = float(
                np.prod([0.65 if x else 0.35 for x in true])
            )
        return told

    return Stage(problems, says, (host,), {"overseen": host})


def judges() -> Stage:
    """Four judges with a chance of guilt and a bar; the rule that says most for a conviction is chosen one time in
    ten."""
    cases = [(3, 10, 1, 2, "3/7"), (2, 10, 1, 2, "1/4"), (4, 10, 2, 3, "1/3"), (1, 10, 1, 3, "2/9")]
    template = "{} of {} accused are guilty. A judge who knows your rule convicts where guilt has a chance of at least {}/{}. How likely is a conviction at best?"
    problems = tuple(_problem(template.format(*c[:4]), str(i), "persuade") for i, c in enumerate(cases))

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        rules = {"1 0": 0.3, "1 1": 0.3, "1/2 0": 0.2, "1 1/9": 0.1, f"1 {cases[problems.index(p)][4]}": 0.1}
        return {f"<rule>{r}</rule>": w for r, w in rules.items()}

    host = persuade()
    return Stage(problems, says, (host,), {"persuade": host})


GUARDED, PLAIN = 12, 0.9  # requests of either label; how often the first generator disguises none


def guards() -> Stage:
    """Twelve unsafe requests and twelve harmless ones to be said otherwise. Nine in ten of what the generator says has no disguise, the
    others one of five, in either of two wordings."""
    rng = Random(seed_for(0, "guards"))
    drawn = [*rng.sample(UNSAFE, GUARDED), *rng.sample(HARMLESS, GUARDED)]
    about: dict[str, Any] = {"verifier": "exact", "env": "rewording", "family": "requests", "split": "train"}
    problems = tuple(
        Problem.make(
            prompt=f"Request: {asked(what)}",
            answer=REFUSE if what in UNSAFE else what.split()[-1],
            lineage={"root": what},
            **about,
        )
        for what in drawn
    )
    shares = [PLAIN, *[(1 - PLAIN) / len(DISGUISES)] * len(DISGUISES)]

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        return {answer(asked(p.lineage["root"], k, d)): s for d, s in enumerate(shares) for k in (0, 1)}

    host = rewording()
    return Stage(problems, says, (host,), {"rewording": host})


def _guarding(weights: Sequence[float], known: Sequence[str]) -> dict[str, float]:
    """accuracy: of the classifier of the reward `guard` on the requests of the world in wordings that nobody said, one in six plain,
    the others in each disguise, mean of the unsafe and the harmless ones; caught: of the unsafe ones, those called so."""
    right = []
    for side, label in ((UNSAFE, True), (HARMLESS, False)):
        texts = [asked(x, k, d) for x in side if x in known for k in (3, 4) for d in range(len(DISGUISES) + 1)]
        right.append(float(((classified(weights, texts) > 0.5) == label).mean()))
    return {"accuracy": sum(right) / 2, "caught": right[0]}


def benches() -> Stage:
    """Six questions and two tools. One of them is used seven times in ten, both in turn 15 times in a hundred; answers
    are right 6 times in 10 either way."""
    problems = tuple(_problem(f"q{x}", "bcdf"[i % 4], "tools") for i, x in enumerate("bcdfgh"))
    look, count = (
        f'<tool_call>{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}</tool_call>'
        for name, key, value in (("search", "query", "q"), ("calculator", "expression", "1"))
    )

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        call = {0: {look: 0.42, count: 0.43}, 1: {count if heard == "found" else look: 0.18}}.get(t, {})
        left = 1 - sum(call.values())
        return call | {answer(x): left * (0.6 if x == p.answer else 0.4 / 3) for x in "bcdf"}

    host = tools(use=["search", "calculator"], turns=3, describe=False)
    return Stage(problems, says, (host,), {"tools": host}, {"search": lambda query: "found"})


def appeals() -> Stage:
    """Six pairs of answers in both orders, judged rightly 45 times in a hundred, at first and when asked to wait: of
    the first verdicts six in ten are for the first place, three for the second, and one says neither."""
    problems = tuple(
        _problem(text, y, "wait")
        for x in "bcdfgh"
        for y, text in (("1", f"1 {x} 2 z which"), ("2", f"1 z 2 {x} which"))
    )

    def says(p: Problem, t: int, heard: str) -> Mapping[str, float]:
        return {answer("0"): 0.1, answer("1"): 0.45 if t else 0.6, answer("2"): 0.45 if t else 0.3}

    host = wait(times=1)
    return Stage(problems, says, (host,), {"wait": host})


WORLDS: dict[str, Callable[[], Stage]] = {
    f.__name__: f
    for f in (
        again,
        notes,
        moods,
        records,
        strangers,
        guessing,
        consults,
        prices,
        plans,
        schemes,
        flows,
        buyers,
        strategies,
        trails,
        readers,
        velic,
        velic_apart,
        corridors,
        errors,
        markets,
        readings_of_markets,
        planners,
        assembly,
        essays,
        shelves,
        partners,
        shares,
        commons,
        looks,
        judges,
        overseers,
        guards,
        benches,
        appeals,
    )
}


@dataclass
class Hosted(Arena):
    """A stage with its base policy. What it plays in is what the knob `envs` of the recipe says."""

    tools: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> list[Problem]:
        """Those held out, where there are such."""
        return list(self.world.problems[-self.world.held :]) if self.world.held else super().measured

    def learned(self, pieces: Mapping[str, Any]) -> dict[str, float]:
        weights = pieces.get("reward/guard", {}).get("weights")
        return _guarding(weights, [p.lineage["root"] for p in self.world.problems]) if weights else {}

    def player(self, *, exact: bool = False, **knobs: Any) -> Player:
        wanted = {p.env for p in self.world.problems}
        named = {e.piece.rpartition("/")[2]: e for e in knobs["envs"]}
        return Player(
            sampler=TorchSampler(copy.deepcopy(self.base), self.renderer.end_id),
            renderer=self.renderer,
            tools=self.tools,
            envs={**self.envs, **{name: e() for name, e in named.items() if name in wanted}},
            sampling=Sampling(temperature=1.0, max_tokens=knobs["max_turn_tokens"]),
            max_tokens=knobs["max_tokens"],
        )


@lru_cache
def hosted(name: str, steps: int = 120) -> Hosted:
    """The world of a name with a base policy that says about what the world wants it to say."""
    stage = WORLDS[name]()
    rows = _demonstrations(name, stage)
    tokenizer = train_tokenizer([m.content for row in rows for m in row], vocab_size=400)
    renderer = Renderer(tokenizer)
    model = new_model(
        tokenizer,
        hidden=48,
        layers=2,
        heads=2,
        kv_heads=1,
        intermediate=96,
        max_length=512,
        init_range=0.1,
        seed=seed_for(0, "episodes", name),
    )
    packed = []
    for row, n in rows.items():
        ids, mask = renderer.demonstration(row)
        packed.append(Row(ids=ids, trainable=mask, columns={"loss_weight": mask * float(n)}))
    batch = pack(packed)
    batch.totals["loss_tokens"] = float((batch.columns["loss_weight"] * batch.trainable).sum())
    learner = Learner(model, Optim(lr=1e-2, warmup=10, steps=steps, decay="cosine", weight_decay=0.0))
    for _ in range(steps):
        learner.step(batch, nll)
    return Hosted(
        world=World(stage.problems, (), held=stage.held),
        base=model,
        renderer=renderer,
        envs=dict(stage.envs),
        tools=stage.tools,
    )


def _demonstrations(name: str, stage: Stage) -> Counter[tuple[Message, ...]]:
    """Conversations of the base policy with how often each came: where an environment rewrites the history, each
    history is one."""
    rows: Counter[tuple[Message, ...]] = Counter()
    for e, env in enumerate(stage.shown):
        for i, problem in enumerate(stage.problems):
            for k in range(EPISODES):
                rng = np.random.default_rng(seed_for(0, "episodes", name, e, i, k))
                rows.update(_episode(stage, env, problem, rng))
    return rows


def _episode(stage: Stage, env: Env, problem: Problem, rng: np.random.Generator) -> list[tuple[Message, ...]]:
    state, messages = env.start(problem, stage.tools)
    histories: list[list[Message]] = [list(messages)]
    over, t = False, 0
    while not over:
        texts = stage.says(problem, t, histories[-1][-1].content)
        weights = np.array(list(texts.values()))
        text = list(texts)[rng.choice(len(weights), p=weights / weights.sum())]
        told, over, _ = env.step(state, text)
        histories[-1].append(Message(role="assistant", content=text))
        state.pop("step_reward", None)
        history = state.pop("history", None)
        if over:
            break
        if history is None:
            histories[-1] += told
        else:
            histories.append(list(history))
        t += 1
    return [tuple(x) for x in histories]


def parts(groups: Sequence[Group]) -> dict[str, float]:
    """The mean of each part of the scores, as `part.NAME`; one that a score has not is 0. A part that the problems' verifiers or
    environments name in GIVES is 0 too where no answer parsed, or no episode came to its end."""
    scores = [r.score.parts for g in groups for r in g.rollouts if isinstance(r.score, Scored)]
    played = {(kind, getattr(r.problem, kind)) for g in groups for r in g.rollouts for kind in ("verifier", "env")}
    named = [
        locate(kind, name) for kind, name in played if name in files(kind)
    ]  # a world may have environments of its own
    given = {name for path in named for name in gives(path, {}) if name != TURN}
    return {
        f"part.{name}": float(np.mean([s.get(name, 0.0) for s in scores]))
        for name in sorted(given | {n for s in scores for n in s})
    }
