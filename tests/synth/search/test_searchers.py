"""Searchers and the demonstrations made of their runs."""

import random

import pytest

from synth.demonstrations.browsing import browsing, make, replays
from synth.knowledge.kb import KB, Entity, Fact, Relation, passages
from synth.knowledge.world import world
from synth.questions.entity_tree import EntityTrees
from synth.questions.pattern import Clue, Named, Node, Nothing, Pattern, Span, Than, Third, to_json
from synth.search.index import build_index, pages_of_kb, table_title
from synth.search.searchers import Tools, World, run
from synth.search.searchers.branch_and_check import branch_and_check
from synth.search.searchers.oracle import oracle
from synth.search.searchers.shallow import closed_book, greedy, one_search
from synth.types import Demonstration, Message, Problem
from tasks.knowledge.search_tool import Search
from training.env._browse import LAST
from training.env.search import search as environment

CAPITAL = Relation(name="capital", domain="country", range="city", functional=True, complete=True, label="capital")
AREA = Relation(name="area", domain="country", range="number", functional=True, complete=True, label="area")
BORDER = Relation(
    name="border",
    domain="country",
    range="country",
    complete=True,
    label="border",
    passage="{x} borders {y}.",
    forward="a country that borders {x}",
    inverse="a country that borders {y}",
)
CODE = Relation(name="code", domain="country", range="string", functional=True, complete=True, label="code")
NAMES = ("Aria", "Boria", "Coria", "Doria", "Eria", "Foria", "Goria")


def small() -> KB:
    entities = [Entity.make("country", n) for n in NAMES] + [Entity.make("city", f"{n}ville") for n in NAMES]
    facts = [Fact.make(f"country:{n}", "capital", object=f"city:{n}ville") for n in NAMES]
    facts += [Fact.make(f"country:{n}", "area", literal=str(10 * (i + 1))) for i, n in enumerate(NAMES)]
    facts += [Fact.make(f"country:{n}", "code", literal=n[:1] if i < 5 else "Z") for i, n in enumerate(NAMES)]
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)]
    facts += [
        Fact.make(f"country:{NAMES[a]}", "border", object=f"country:{NAMES[b]}")
        for i, j in pairs
        for a, b in ((i, j), (j, i))
    ]
    return KB(entities, [CAPITAL, AREA, BORDER, CODE], facts)


KB_ = small()
INDEX, WORLD = build_index(pages_of_kb(KB_)), World.of(KB_)
ARIA = Clue(relation="border", forward=True, target="country:Aria")


def ask(*clues, answer, relation="capital", root=None) -> Problem:
    pattern = Pattern(relation=relation, forward=True, root=root or Node(type="country", clues=clues))
    return Problem.make(
        prompt="What is the capital of the country that ...?",
        answer=answer,
        verifier="exact",
        args={"aliases": []},
        env="search",
        family="fuzzy_tree",
        split="train",
        lineage={"pattern": to_json(pattern), "root": f"country:{answer.removesuffix('ville')}"},
    )


CASES = {
    "named": ask(answer="Coriaville", root="country:Coria"),
    "span": ask(
        ARIA, Clue(relation="area", forward=True, target=Span(low=15, high=25, said="about 20")), answer="Boriaville"
    ),
    "third": ask(ARIA, Clue(relation="area", forward=True, target=Third(largest=False)), answer="Boriaville"),
    "than": ask(
        ARIA, Clue(relation="area", forward=True, target=Than(larger=True, other="country:Coria")), answer="Doriaville"
    ),
    "named letter": ask(ARIA, Named(initial="D", words=1), answer="Doriaville"),
    "nothing": ask(
        Clue(relation="code", forward=True, target="Z"),
        Clue(relation="border", forward=True, target=Nothing()),
        answer="Goriaville",
    ),
    "literal": ask(Clue(relation="code", forward=True, target="E"), answer="Eriaville"),
    "nested": ask(
        Clue(
            relation="border",
            forward=True,
            target=Node(type="country", clues=(Clue(relation="code", forward=True, target="D"),)),
        ),
        Clue(relation="area", forward=True, target=Span(low=45, high=99, said="over 45")),
        answer="Eriaville",
    ),
    "some": ask(
        Clue(relation="code", forward=True, target="Z"),
        Clue(relation="border", forward=True, target=Node(type="country", clues=())),
        answer="Foriaville",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_oracle_and_branch_and_check_answer_every_kind_of_clue(name):
    problem = CASES[name]
    low, real = run(oracle, problem, INDEX, WORLD), run(branch_and_check, problem, INDEX, WORLD)
    assert low.right and real.right and 1 <= low.calls <= real.calls and low.answer == problem.answer


def test_shallow_searchers_do_not():
    problem = CASES["nested"]
    assert not run(one_search, problem, INDEX, WORLD).right and run(one_search, problem, INDEX, WORLD).calls == 1
    assert run(closed_book, problem, INDEX, WORLD).calls == 0
    assert run(greedy, CASES["named"], INDEX, WORLD).right and run(greedy, CASES["literal"], INDEX, WORLD).calls >= 1


def test_one_search_is_granted_the_answer_that_stands_beside_the_root():
    easy = ask(answer="Coriaville", root="country:Coria")
    easy = Problem.make(
        prompt="capital of Coria",
        answer=easy.answer,
        verifier="exact",
        args=easy.args,
        family="f",
        split="train",
        lineage=easy.lineage,
    )
    assert run(one_search, easy, INDEX, WORLD).right


def test_guess_is_worth_the_share_of_the_most_frequent_answer():
    assert WORLD.priors["code", True] == ("Z", 2 / 7)
    guessed = ask(answer="Z", relation="code", root="country:Goria")
    assert run(closed_book, guessed, INDEX, WORLD).right


def test_a_budget_ends_a_search_and_a_call_is_made_once():
    spent = run(branch_and_check, CASES["nested"], INDEX, WORLD, most=2)
    assert spent.spent and spent.calls == 2 and not spent.right
    tools = Tools(INDEX)
    assert tools.open("Aria") == tools.open("Aria") and len(tools.calls) == 1


def test_a_problem_without_a_pattern_is_no_question_about_a_kb():
    bare = Problem.make(prompt="1 + 1?", answer="2", verifier="number", family="sums", split="train")
    with pytest.raises(LookupError, match="it has no pattern"):
        run(oracle, bare, INDEX, WORLD)


def test_tables_list_all_values_smallest_first():
    lines = INDEX.open(table_title(AREA)).split("\n")
    assert lines[0] == "Aria: 10" and lines[-1] == "Goria: 70" and len(lines) == 7


def test_two_pages_of_one_name_are_both_read():
    town = Relation(name="mayor", domain="town", range="string", functional=True, label="mayor")
    kb = KB(
        [*KB_.entities.values(), Entity.make("town", "Aria")],
        [*KB_.relations.values(), town],
        [*KB_.facts.values(), Fact.make("town:Aria", "mayor", literal="Lo")],
    )
    index, known = build_index(pages_of_kb(kb)), World.of(kb)
    assert run(oracle, CASES["span"], index, known).right
    assert run(branch_and_check, ask(answer="Ariaville", root="country:Aria"), index, known).right


def test_every_question_of_the_entity_trees_is_answered():
    kb = world(countries=12, seed=1)
    trees = EntityTrees(kb, Search(passages(kb)), seed=0)
    problems = [p for h in (1, 2, 3) for i in range(12) if isinstance(p := trees("train", h, i), Problem)]
    index, known = build_index(pages_of_kb(kb)), World.of(kb)
    assert len(problems) > 10 and all(run(oracle, p, index, known).right for p in problems)


# ---- demonstrations


def told(problem, *, detour=0.0, seed=0, **limits):
    limits = {"max_calls": 30, "max_context": 12_000, **limits}
    searched = run(branch_and_check, problem, INDEX, WORLD)
    return browsing(problem, searched, INDEX, WORLD, rng=random.Random(seed), detour=detour, **limits)


def test_a_demonstration_plays_in_the_environment_byte_for_byte():
    env = environment(tools=["search", "open", "find"], max_calls=40, max_context=50_000)
    for problem in CASES.values():
        for detour in (0.0, 1.0):
            shown = told(problem, detour=detour)
            assert isinstance(shown, Demonstration) and shown.detours == detour
            state, _ = env.start(problem, {"search": type("Tool", (), {"index": INDEX})})
            turns = [m for m in shown.messages if m.role != "user"]
            for one, two in zip(turns[::2], turns[1::2]):
                heard, over, _ = env.step(state, one.content)
                assert not over and [m.content for m in heard] == [two.content]
            _, over, score = env.step(state, turns[-1].content)
            assert over and score.value == 1.0 and LAST not in shown.messages[-2].content


def test_detours_lead_nowhere_and_are_repaired():
    for seed in range(20):
        shown = told(CASES["nested"], detour=1.0, seed=seed)
        plain = told(CASES["nested"])
        extra = [m.content for m in shown.messages if m not in plain.messages and m.role == "tool"]
        assert shown.calls == plain.calls + 1 and not any("Eriaville" in x for x in extra)


@pytest.mark.parametrize("limits, reason", [({"max_calls": 1}, "too_many_calls"), ({"max_context": 10}, "too_long")])
def test_what_is_too_long_is_set_aside(limits, reason):
    assert told(CASES["nested"], **limits).reason == reason


def test_a_wrong_run_is_no_demonstration_and_changed_pages_are_seen():
    wrong = run(closed_book, CASES["nested"], INDEX, WORLD)
    assert (
        browsing(
            CASES["nested"], wrong, INDEX, WORLD, rng=random.Random(0), detour=0, max_calls=9, max_context=999
        ).reason
        == "not_answered"
    )
    shown = told(CASES["nested"])
    assert replays(shown, INDEX)
    messages = [*shown.messages[:2], Message(role="tool", content="The page said this."), *shown.messages[3:]]
    assert not replays(Demonstration.make(problem=shown.problem, messages=messages, split="train"), INDEX)
    with pytest.raises(ValueError, match="is no <search>, <open> or <find>"):
        make("<answer>x</answer>", INDEX)
