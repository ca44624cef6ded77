"""Conversations told with made-up names: the same everywhere, none that is known, and what a question may say of a name
stays true."""

import random
import re
from dataclasses import replace

from synth.demonstrations.browsing import browsing, replays
from synth.demonstrations.renaming import known_names, renamed
from synth.knowledge.kb import passages
from synth.knowledge.world import world
from synth.questions.entity_tree import EntityTrees, entity_tree
from synth.search.index import build_index, pages_of_kb
from synth.search.searchers import World, run
from synth.search.searchers.oracle import oracle
from synth.types import Message
from tasks.knowledge.search_tool import Search
from training.model.model import train_tokenizer


def tell(texts: list[str], names: list[str], seed: int = 0) -> list[str]:
    return [
        m.content
        for m in renamed([Message(role="user", content=t) for t in texts], known_names(names), random.Random(seed))
    ]


def test_a_name_is_the_same_one_wherever_it_stands_and_another_each_time():
    told = tell(
        ["Who rules Norvia?", "<open>Norvia</open>", "The president of Norvia is Belka.", "<answer>Belka</answer>"],
        ["Norvia", "Belka"],
    )
    land, person = re.fullmatch(r"The president of (N\w+) is (B\w+)\.", told[2]).groups()
    assert told == [f"Who rules {land}?", f"<open>{land}</open>", told[2], f"<answer>{person}</answer>"]
    assert not {land, person} & {"Norvia", "Belka"} and land != person
    assert len({tell(["Norvia"], ["Norvia"], seed)[0] for seed in range(20)}) > 15


def test_a_name_that_begins_another_is_not_taken_for_it():
    names = ["Niger", "Nigeria", "Guinea", "Guinea-Bissau", "Equatorial Guinea", "Papua New Guinea"]
    told = tell([" | ".join(names), "Nigeria borders Niger. Nigerian and Guinea-Bissauan stay."], names)
    new_names = told[0].split(" | ")
    assert len(set(new_names)) == 6 and not set(new_names) & set(names)
    assert told[1] == f"{new_names[1]} borders {new_names[0]}. Nigerian and Guinea-Bissauan stay."
    assert [len(m.split()) for m in new_names] == [1, 1, 1, 1, 2, 3] and [m[0] for m in new_names] == [
        "N",
        "N",
        "G",
        "G",
        "E",
        "P",
    ]


def test_numbers_small_letters_and_words_that_are_no_names_stay():
    text = "The Republic of Norvia (1912) has 3,000 lakes and pays in euro."
    told = tell([text], ["Republic of Norvia", "euro", "1912"])[0]
    assert re.fullmatch(r"The R\w+ of N\w+ \(1912\) has 3,000 lakes and pays in euro\.", told) and "Norvia" not in told
    assert tell(["Ölland und Österreich"], ["Österreich"])[0].startswith("Ölland und Ö")
    assert tell([], ["Norvia"]) == [] and tell(["plain text"], []) == ["plain text"]


def test_an_answer_that_is_a_number_is_another_one_between_its_neighbours():
    texts = [
        "How long is Norvo, 210.5 km longer than Belka?",
        "<open>Norvo</open>",
        "Norvo: 3254 km (1912), 32540 ft, 3,254 or 4,001.",
        "<answer>3254</answer>",
    ]
    seen = set()
    for seed in range(20):
        told = tell(texts, ["Norvo", "Belka"], seed)
        number = int(re.fullmatch(r"<answer>(\d{4})</answer>", told[3])[1])
        assert (
            1912 < number < 4001
            and f": {number} km (1912), 32540 ft, 3,254 or 4,001." in told[2]
            and "210.5 km" in told[0]
        )
        seen.add(number)
    assert len(seen) > 15
    assert tell(["1912, 1914", "<answer>1913</answer>"], []) == [
        "1912, 1914",
        "<answer>1913</answer>",
    ]  # there is no other between them
    for answer in ("7", "3,000", "12.5", "in 1912"):
        assert tell([f"It is {answer}.", f"<answer>{answer}</answer>"], []) == [
            f"It is {answer}.",
            f"<answer>{answer}</answer>",
        ]


def test_more_names_than_two_syllables_give():
    names = [f"Q{chr(97 + i)}{chr(97 + j)}x" for i in range(26) for j in range(4)]
    assert len(set(tell([" ".join(names)], names)[0].split())) == len(names)


def test_a_renamed_demonstration_is_one_of_the_renamed_pages():
    kb = world(countries=8, seed=3)
    pages = [p for p in pages_of_kb(kb) if not p.id.startswith("table:")]
    index, searcher = build_index(pages), World.of(kb)
    questions, _ = entity_tree(
        EntityTrees(kb, Search(passages(kb)), seed=3), {("train", hops): 4 for hops in (1, 2, 3)}
    )
    assert len(questions) > 6
    for problem in questions:
        rng = random.Random(1)
        shown = browsing(
            problem,
            run(oracle, problem, index, searcher),
            index,
            searcher,
            rng=rng,
            detour=0,
            max_calls=30,
            max_context=9000,
        )
        texts = [m.content for m in shown.messages] + [t for p in pages for t in (p.title, p.text, *p.mentions)]
        told = iter(tell(texts, [e.name for e in kb.entities.values()]))
        other = replace(shown, messages=tuple(replace(m, content=next(told)) for m in shown.messages))
        again = build_index(
            replace(p, title=next(told), text=next(told), mentions=tuple(next(told) for _ in p.mentions)) for p in pages
        )
        assert replays(other, again) and not replays(other, index)


def test_a_small_vocabulary_of_made_up_names_cuts_a_new_name_as_a_known_one():
    kb = world(countries=120, seed=3)
    old = [e.name for e in kb.entities.values()]
    new = [e.name for e in world(countries=120, seed=4, avoid=old).entities.values()]
    texts = [t for p in pages_of_kb(kb) if not p.id.startswith("table:") for t in (p.text, *p.mentions)]

    def alone(tokenizer, names: list[str]) -> float:
        return sum(len(tokenizer(f" {n}")["input_ids"]) == 1 for n in names) / len(names)

    large = train_tokenizer(texts, 1536)
    small = train_tokenizer([t for i in range(len(texts)) for t in tell([texts[i]], old, seed=i)], 896)
    assert alone(large, old) > 0.4 and alone(large, new) < 0.01
    assert alone(small, old) < 0.1 and alone(small, new) < 0.1
