"""Families of verifiable problems: repeatable, disjoint across splits, certified by two routes. Every file of the
folder is tested."""

from __future__ import annotations

import pkgutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synth.families
from synth.families import countdown as countdown_module
from synth.families import linear_equations as linear_module
from synth.families._sample import Refused
from synth.families.countdown import countdown, reachable
from synth.families.linear_equations import determinant, linear_equations
from synth.families.list_sorting import certify as certify_order
from synth.questions.certify import certify
from synth.types import Problem, Quarantined, split_of
from synth.verify import extract_answer, verify
from synth.verify._database import mutations
from synth.verify.expression import parse

NAMES = sorted(m.name for m in pkgutil.iter_modules(synth.families.__path__) if not m.name.startswith("_"))
MODULES = {name: import_module(f"synth.families.{name}") for name in NAMES}
FAMILIES = [getattr(module, name) for name, module in MODULES.items()]
LEVELS = [(f, level) for f in FAMILIES for level in range(1, len(MODULES[f.__name__].LADDER) + 1)]
SLOW = {"python_functions": 1}  # how many items of a level are scored where a verifier starts a process for each answer


@pytest.mark.parametrize("family, level", LEVELS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_every_rung_makes_short_problems_whose_solution_is_right(family, level):
    for index in range(8):
        item = family(7, "train", index, levels=[level])
        if isinstance(item, Quarantined):
            assert item.reason == "not_unique" and item.stage == "problems", item
            continue
        assert item.difficulty["level"] == level and item.family == family.__name__
        assert len(item.question) < (300 if level == 1 else 800) and len(item.lineage["solution"]) < 500
        assert (
            item.lineage["certificate"] == list(MODULES[item.family].CERTIFICATE)
            and len(item.lineage["certificate"]) >= 2
        )
        assert certify(item) is None, "the stored problem is not proved again from its text"
        if index < SLOW.get(item.family, 8):
            assert verify(item, item.answer).value == 1.0
            assert verify(item, extract_answer(item.lineage["solution"])).value == 1.0


@cache
def _two(family):
    """Problems, and one among them whose answer is wrong for the first."""
    items = [p for i in range(30) if isinstance(p := family(5, "train", i), Problem)]
    return items, next(p for p in items if p.answer != items[0].answer and verify(items[0], p.answer).value < 1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_reference_is_not_proved(family):
    """A certificate that always agrees proves nothing: the answer of another item must be refuted."""
    items, other = _two(family)
    assert certify(replace(items[0], answer=other.answer)) is not None


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.__name__ not in ("linear_equations", "countdown", "list_sorting")]
)
def test_routes_that_disagree_set_the_problem_aside(family, monkeypatch):
    items, other = _two(family)
    monkeypatch.setattr(MODULES[family.__name__], "solve", lambda question: other.answer)
    item = family(5, "train", items[0].lineage["index"])
    assert isinstance(item, Quarantined) and item.reason == "routes_disagree"

    def refuses(question):
        raise Refused("not_unique: two answers fit")

    monkeypatch.setattr(MODULES[family.__name__], "solve", refuses)
    assert family(5, "train", items[0].lineage["index"]).reason == "not_unique"


@pytest.mark.parametrize("family", FAMILIES)
def test_another_text_is_refused(family):
    with pytest.raises(Refused, match="roundtrip"):
        MODULES[family.__name__].solve("What is the meaning of it all?")


def test_proving_again_needs_a_known_family():
    with pytest.raises(LookupError, match="does not hold"):
        certify(Problem.make(prompt="?", answer="1", verifier="exact", family="entity_tree_of_life", split="train"))


@pytest.mark.parametrize("family", FAMILIES)
def test_items_repeat_and_differ_by_seed_split_and_index(family):
    top = [len(MODULES[family.__name__].LADDER)]
    assert family(1, "train", 5) == family(1, "train", 5)
    assert len({family(s, split, i, levels=top).id for s in (1, 2) for split in ("train", "test") for i in (0, 1)}) == 8


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_model_is_shown_lies_in_one_split(family):
    """The split is a hash of the normal form, and the prompt, not what is scored beside it, decides: drawn for four runs,
    no prompt has two normal forms, none of test or valid occurs in train, and the hardest rung seldom repeats itself."""
    levels, n = [*range(1, 1 + len(MODULES[family.__name__].LADDER))], FRESH.get(family.__name__, 40)
    shown: dict[str, str] = {}
    prompts: dict[str, set[str]] = {"train": set(), "valid": set(), "test": set()}
    for seed, split in ((101, "train"), (102, "train"), (103, "test"), (104, "valid")):
        for level in levels:
            for i in range(n // len(levels)):
                if isinstance(p := family(seed, split, i, levels=[level]), Problem):
                    root = p.lineage["root"]
                    assert shown.setdefault(p.seen, root) == root, p.question
                    assert split_of(root) == split
                    prompts[split].add(p.seen)
    assert not any(prompts[a] & prompts[b] for a, b in (("train", "test"), ("train", "valid"), ("valid", "test")))
    last = [family(104, "train", i, levels=levels[-1:]) for i in range(12)]
    assert len({p.seen for p in last if isinstance(p, Problem)}) >= 10


@pytest.mark.parametrize("family", FAMILIES)
def test_unknown_level_is_refused(family):
    with pytest.raises(ValueError, match=r"levels \[99\] must name"):
        family(1, "train", 0, levels=[99])


def test_a_family_too_small_for_a_split_says_so():
    from synth.families._sample import sample

    root = next(f"only:{i}" for i in range(100) if split_of(f"only:{i}") == "train")
    with pytest.raises(ValueError, match="more different problems"):
        sample(1, "only", "test", 0, lambda rng: (root, None))


def test_scaled_equations_have_one_normal_form():
    assert linear_module._normal_form(((2,), 4, 10)) == linear_module._normal_form(((-1,), -2, -5)) == (1, 2, 5)
    assert (
        linear_module.write(((3, -1), 0, -4)) == "3x - y = -4" and linear_module.write(((-2,), 5, 1)) == "-2x + 5 = 1"
    )


def test_dependent_system_is_not_unique():
    assert linear_module.certify([((1, 2), 0, 3), ((2, 4), 0, 6)])[1].startswith("not_unique: ")


def test_routes_that_disagree_are_caught(monkeypatch):
    monkeypatch.setattr(linear_module, "_cramer", lambda a, c: (Fraction(1, 2),))
    roots, reason = linear_module.certify([((2,), 1, 7)])
    assert reason.startswith("routes_disagree: ")
    item = linear_equations(1, "train", 0)
    assert isinstance(item, Quarantined) and item.reason == "routes_disagree" and "Cramer" in item.evidence
    assert certify_order([2, 1], [2, 1], "ascending").startswith("routes_disagree: ")
    assert certify_order([2, 1, 1], [1, 2, 2], "ascending").startswith("routes_disagree: ")
    monkeypatch.setattr(countdown_module, "reachable", lambda numbers: frozenset())
    assert countdown_module.certify([1, 2], 3, "1 + 2").startswith("routes_disagree: ")
    assert countdown(1, "train", 0).reason == "routes_disagree"


def test_impossible_countdown_is_proved():
    assert countdown_module.certify([1, 1], 7, "1 + 1").startswith("impossible: ")


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=3, max_size=3),
    st.lists(st.integers(-9, 9), min_size=3, max_size=3),
)
def test_systems_agree_with_numpy(a, roots):
    import numpy as np

    rows = [(tuple(row), 0, sum(k * x for k, x in zip(row, roots, strict=True))) for row in a]
    solution, reason = linear_module.certify(rows)
    assert determinant(a) == round(np.linalg.det(np.array(a, dtype=float)))
    assert (reason is None) == (determinant(a) != 0)
    assert reason is not None or solution == tuple(roots)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=3))
def test_reachable_is_what_enumeration_of_expressions_finds(numbers):
    expressions = set()
    forms = ["{0} {p} {1}"] if len(numbers) == 2 else ["({0} {p} {1}) {q} {2}", "{0} {p} ({1} {q} {2})"]
    for order in permutations(numbers):
        for form in forms:
            for p in "+-*/":
                for q in "+-*/":
                    expressions.add((form.format(*order, p=p, q=q), parse(form.format(*order, p=p, q=q))))
    inner = {
        (text, node)
        for text, node in expressions
        if node.value is not None and node.value > 0 and node.value.denominator == 1
    }

    def whole(text):  # the parenthesised step is a positive integer too
        part = text[text.find("(") + 1 : text.find(")")] if "(" in text else text
        value = parse(part).value
        return value is not None and value > 0 and value.denominator == 1

    assert reachable(numbers) == {int(node.value) for text, node in inner if whole(text)}


FRESH = {"key_and_door": 12, "python_functions": 12, "program_repair": 12}  # draws of those that take long to make
FRESH |= dict.fromkeys(("cryptarithms", "errands", "sokoban_pushes"), 16)
CHINOOK = Path(__file__).parents[4] / "shared" / "data" / "chinook" / "Chinook_Sqlite.sql"


@pytest.mark.skipif(
    not CHINOOK.exists(),
    reason=f"{CHINOOK} is not here: take Chinook_Sqlite.sql from github.com/lerocha/chinook-database",
)
def test_queries_over_chinook_on_six_databases():
    from synth.families import music_shop_sql as module

    kinds = set()
    for level in range(1, 5):
        for index in range(6):
            problem = module.music_shop_sql(4, "train", index, levels=[level], database=str(CHINOOK))
            kinds.add(module.read(problem.question)[0])
            assert certify(problem) is None and verify(problem, problem.answer).value == 1.0
            artists = {r[1] for r in problem.args["tables"]["artist"]["rows"]}
            assert artists <= {a for a, _ in module._chinook(str(CHINOOK))}
            databases = mutations(problem.args["tables"])
            assert len(databases) >= 6 and all(
                d["track"]["rows"] != problem.args["tables"]["track"]["rows"] for d in databases[1:]
            )
            assert verify(problem, "SELECT 1 FROM nothing").value == 0.0
            assert len({str(d["track"]["rows"]) for d in databases}) == len(databases)
    assert len(kinds) >= 7


def test_a_missing_chinook_is_a_sentence(tmp_path):
    from synth.families.music_shop_sql import music_shop_sql

    with pytest.raises(ValueError, match="there is no file"):
        music_shop_sql(1, "train", 0, database=str(tmp_path / "none.sql"))
    (tmp_path / "other.sql").write_text("CREATE TABLE x (y);")
    with pytest.raises(ValueError, match="no script of the Chinook"):
        music_shop_sql(1, "train", 0, database=str(tmp_path / "other.sql"))


def test_claims_and_critiques_are_balanced_and_siblings_share_their_root():
    for name, words in (("claims", ("proved", "disproved")), ("critiques", ("1", "2", "3", "4", "none"))):
        items = [MODULES[name].__dict__[name](2, "train", i, levels=[1, 2, 3]) for i in range(400)]
        words_of_answers = [word for p in items for word in p.answer.split(", ")]
        shares = [words_of_answers.count(word) / len(words_of_answers) for word in words]
        assert set(words_of_answers) == set(words) and all(abs(s - 1 / len(words)) < 0.06 for s in shares), shares
        assert max(Counter(p.answer for p in items).values()) <= 0.25 * len(items)
        assert all(any(c in p.question for c in p.lineage["root"].partition(":")[2]) for p in items)
    from random import Random

    forms = {claims_draw(Random(i))[0] for i in range(50)}
    assert all(not any(w in f for w in ("equal", "above", "below", "divisible")) for f in forms), (
        "the root is the expression alone"
    )


def claims_draw(rng):
    return MODULES["claims"].draw(rng, terms=2, size=9)


def test_an_edit_scores_by_the_similarity_of_its_patch():
    problem = MODULES["program_repair"].program_repair(1, "train", 0, levels=[2])
    old, new = problem.answer.split("\n")
    near = verify(problem, f"{old}\n{new[:-1]}{(int(new[-1]) % 9) + 1}")
    assert 0 < near.value < 1 and verify(problem, problem.answer).value == 1.0
    assert verify(problem, f"- x = x + 777\n{new}").parts["parsed"] == 0.0, "what is not there cannot be replaced"


def test_plans_of_tools_are_drawn_by_what_they_do():
    from random import Random

    from synth.families.tool_pipelines import _text, functions, tool_pipelines
    from synth.verify.pipeline import run

    rng = Random(99)
    texts = [_text(rng) for _ in range(100)]
    for plans in (plans for n in (2, 3, 4, 5) for plans in functions(n)):
        assert len({repr([run(plan, t) for t in texts]) for plan in plans}) == 1, f"not the same of all texts: {plans}"
    root = {plan: f"tool_pipelines:{list(plans[0])}" for n in (2, 5) for plans in functions(n) for plan in plans}
    drawn = [tool_pipelines(3, "train", i, levels=[level]) for level in (1, 4) for i in range(150)]
    assert all(root[tuple(p.answer.split())] == p.lineage["root"] for p in drawn)
    assert max(Counter(p.lineage["root"] for p in drawn[150:]).values()) < 10
    for plan in {p.answer for p in drawn[:150]}:
        paid = [verify(p, plan).value for p in drawn[:150]]
        assert sum(paid) / len(paid) <= 0.25, f"{plan} earns a quarter of level 1 whatever is asked"


def test_graded_sql_by_hand():
    from synth.verify.sql_graded import measures

    four = [("a",), ("b",), ("c",), ("d",)]
    assert measures(four, four[:3]) == (1.0, 0.75, 0.75)
    assert measures(four, four[::-1]) == (1.0, 1.0, 1.0)
    assert measures(four, []) == (0.0, 0.0, 0.0) and measures([], []) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("b", [0, 1, 5])
def test_a_trace_has_exactly_b_dead_ends_and_a_right_answer(b):
    for index in range(20):
        plain, item = (
            countdown(1, "train", index, levels=[1, 3]),
            countdown(1, "train", index, levels=[1, 3], backtracks=b),
        )
        solution = item.lineage["solution"]
        assert (
            item.id == plain.id and solution.count("back") == b and verify(item, extract_answer(solution)).value == 1.0
        )
        for step in solution.split(", back")[:-1]:
            a, operator, other, _, value = step.split(", ")[-1].split()
            rest = [str(n) for n in item.args["numbers"]]
            rest.remove(a)
            rest.remove(other)
            assert item.args["target"] not in reachable([*map(int, rest), int(value)]), "a dead end is one"
