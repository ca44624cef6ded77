"""The words of relations of every kind over every type: articles, number, prepositions, possessives, order of what is
said. The rules are those of tests/support/grammar.py, which must find what was wrong once."""

import json
import random
import re
from itertools import product

import pytest

from synth.knowledge.heads import head_of
from synth.knowledge.kb import Relation
from synth.knowledge.patterns import LABELS, OF_PEOPLE, OF_THINGS, RANGES, TEMPLATES, template_words
from synth.knowledge.sources.documents import _number_words
from synth.knowledge.sources.sqlite_tables import _includes
from synth.knowledge.words import article, is_person, measured, phrased, role, thing_of, wording
from synth.knowledge.world import RELATIONS
from synth.questions.fuzzy.phrases import SLOT, names, phrases, spoken
from synth.questions.fuzzy.text import OPENINGS, Realiser, with_article
from synth.questions.pattern import Clue, Named, Node, Nothing, Pattern, Span, canonical
from tests.support.grammar import faults

TYPES = (
    *("element", "movie", "university", "hour", "order", "person", "product", "unit", "company", "series"),
    *("employee", "artist", "hut", "bus", "one_way_street", "airport", "gas", "country", "club_member"),
)
COLUMNS = {  # column -> (range, options)
    "category": ("", {"single": True}),
    "discovered_by": ("", {"single": True}),
    "builtBy": ("", {"single": True}),
    "owned_by": ("", {"single": True}),
    "country": ("", {"single": True}),
    "city": ("string", {"single": True}),
    "eye_colour": ("", {"single": True}),
    "products": ("", {}),
    "stored_at": ("", {"single": True}),
    "bornIn": ("", {"single": True}),
    "birthPlace": ("town", {"single": True}),
    "author": ("", {"single": True}),
    "valley": ("", {"single": True}),
    "coast": ("", {"single": True}),
    "services": ("", {}),
    "ship_via": ("shipper", {"single": True}),
    "ferry to": ("port", {"single": True}),
    "friends": ("person", {"both": True}),
    "neighbours": ("hut", {"both": True}),
    "height": ("number", {"unit": "m"}),
    "exports": ("number", {"unit": "$"}),
    "elevation": ("number", {"unit": "m"}),
    "UnitsInStock": ("number", {}),
    "numberOfPlatforms": ("number", {}),
    "seats": ("number", {}),
    "year_founded": ("year", {}),
    "first lit": ("year", {}),
    "last restored": ("year", {}),
    "settled": ("year", {}),
    "OrderDate": ("date", {}),
    "isDiscontinued": ("string", {"flag": True}),
    "symbol": ("string", {}),
}
ABBREVIATED = {"length", "height"}  # of the fictional world, in km and m: what was trained on its words keeps them
HEADS = {  # head of a document or a nested record -> (range, unit)
    "tolls - payers": ("hut", ""),
    "shared fences (bordering huts)": ("hut", ""),
    "large ponds (by depth) (carp pond(s))": ("pond", ""),
    "egg ratio (at hatching)": ("number", "cock(s)/hen"),
    "hatching rate": ("number", "chicks/1,000 eggs"),
    "smoke emissions (total emissions)": ("number", "metric tonnes of CO2"),
    "smoke (from peat and turf)": ("number", "kt"),
    "mill gas (exports)": ("number", "cubic metres"),
    "Harvest Expenses 2019": ("number", "% of GDP"),
    "tithes 2021": ("number", "$"),
    "barn growth rate 2021": ("number", "%"),
    "council - inner chamber (number of benches)": ("number", ""),
    "total ferries": ("number", ""),
    "height (highest barn)": ("string", ""),
    "judges (highest court(s))": ("string", ""),
    "market town (name)": ("string", ""),
    "farm song(s) (title)": ("string", ""),
    "guild/guilds": ("string", ""),
}
HEADS_OF = {head[:1].lower() + head[1:]: unit for head, (_, unit) in HEADS.items()}
WRONG = {  # what was written once
    "a product with a products of Chai": "one of many",
    "I am thinking of a movy.": "no word",
    "It has a discontinued of between 1 and 10.": "participle",
    "whose category is a category which is the category of Beryllium": "own name",
    "It is without a named by.": "preposition at the end",
    "What is the settled of the island?": "participle",
    "What is the ferry to of this island?": "two prepositions",
    "The person is one of the actor who plays in a film.": "one of one",
    "an architect whose birth place is that of Coldsey Station": "another kind",
    "that has a hut that has Wolfness Hut as a neighbour as a neighbour": "words twice",
    "It has a number of platforms of between 6 and 8.": "after a unit",
    "It has an area in sq km of about 360.": "not a word",
    "Tell me the elevation m of this hut.": "not a word",
    "a lighthouse that is built by Lene Ryle": "made once",
    "It is in an university.": "article",
    "It lasts a hour.": "article",
    "whose exports is about 12": "number",
    "Its height are about 12.": "number",
    "the the Netherlands": "twice",
    "a film who stars Xy": "who of a thing",
    "an artist which is in Norland": "its of a person",
    "the member that has Olm Town as its home town": "its of a person",
    "an author with Verlo as its birth place": "its of a person",
    "I have an author in mind. This author is in Norland.": "in a country",
    "a book whose author is one who is in the same country as Xy": "in a country",
    "Its publisher is one of which the founding year is in the 1980s.": "one of which",
    "Its publisher is one which is in Verlo.": "one of which",
    "a person who has film director as their occupation": "without an article",
    "a lighthouse with south as its coast": "compass",
    "Name the next station of this station.": "next of",
    "Give the first lighting year of this lighthouse.": "event",
    "the painting of no loan, that has a name": "of none",
    "This hut has the same valley as Xy.": "same place",
    "a hut of which one of the services is radio": "one of several",
    "This author is the author of a book.": "maker",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_was_wrong_once_is_found(text):
    assert WRONG[text] in " ".join(faults(text)), faults(text)


def test_its_may_be_that_of_another_thing():
    assert not faults("It is the member that has a book that has Sanne Solis as its author.")
    assert not faults("It is the member that has a book with Sanne Solis as its author.")


def relations() -> list[Relation]:
    """Relations of every kind over every type, as the readers word them."""
    out: list[Relation] = []

    def add(name: str, domain: str, range_: str, words: dict[str, str], **more: bool) -> None:
        out.append(Relation(name=name, domain=domain, range=range_, **{"functional": True, **more}, **words))

    for type_, (column, (range_, options)) in product(TYPES, COLUMNS.items()):
        range_ = type_ if options.get("both") else range_ or thing_of(column)
        if range_ == type_ and not options.get("both"):
            continue
        words = wording(column, type_, range_, **options)
        add(column, type_, range_, words, functional=column not in ("products", "services") and not options.get("both"))
    for type_, other in product(TYPES, TYPES[5:14]):
        if type_ != other:
            label = other.replace("_", " ")
            for deed in ("", "borrowed"):
                words = {"label": label, **_includes(type_, other, deed)}
                add(f"{type_}_{other}{deed}", type_, other, words, functional=False)
            add(other, type_, other, role(f"{other}_id", type_, other))
            add("link", type_, other, {"label": "link", **template_words("link", type_, other)}, functional=False)
        add("area", type_, "number", measured("area", type_, "sq km"))
        add("ferry", type_, other, phrased("ferry to", type_, other))
        add("next", type_, type_, phrased("next stop", type_, type_))
        add("line", "station", "railway_line", phrased("line", "station", "railway_line"))
    for key in TEMPLATES:
        people = [t for t in TYPES if is_person(t)]
        things = [t for t in TYPES if t not in people]
        for type_ in people if key in OF_PEOPLE else things if key in OF_THINGS else TYPES:
            range_ = RANGES.get(key, "page")
            label = LABELS.get(key, key)
            add(
                key, type_, range_, {"label": label, **template_words(key, type_, range_)}, functional=key != "starring"
            )
    return [*out, *(r for r in RELATIONS if r.name not in ABBREVIATED)]


def headed() -> list[Relation]:
    """Relations with the heads of HEADS, as documents word them."""
    out = []
    for type_, (head, (range_, unit)) in product(TYPES, HEADS.items()):
        thing = "" if range_ in ("number", "string") else range_
        head = head[:1].lower() + head[1:]
        words = _number_words(head_of(head), type_, unit) if range_ == "number" else {"label": head_of(head, thing)}
        if thing != type_:
            out.append(Relation(name=head, domain=type_, range=range_, functional=not thing, **words))
    return out


def test_heads_with_marks_become_phrases():
    wrong: dict[str, list[str]] = {}
    n = 0
    for r in headed():
        for forward in (True,) if r.literal else (True, False):
            for sentence, p in phrases(r, forward):
                text = p.before + FILLED.get(p.kind, "") + p.after
                n += 1
                whole = f"{text}." if sentence else f"the {spoken(p.type)} {text}"
                problems = faults(whole)
                if HEADS_OF[r.name] and "number of" in whole:
                    problems.append("an amount is not counted")
                if re.search(r"[()/%$]| - |\bkt\b|\ba highest\b|\btotal number of total\b", whole):
                    problems.append("marks of a head")
                if problems:
                    wrong[whole] = problems
        asked = f"Name {re.sub('^an? ', 'the ', r.ask('Xy'))}."
        wrong |= {asked: problems} if (problems := faults(asked)) else {}
        before = Realiser([r], str, lambda t, name: [])._asks[r.name][0]
        if HEADS_OF[r.name] and "number of" in before:
            wrong[before] = ["an amount is not counted"]
    assert n > 1000
    assert not wrong, f"{len(wrong)} of {n}: " + json.dumps(
        dict(random.Random(0).sample([*wrong.items()], min(25, len(wrong)))), indent=1
    )


FILLED = {  # kind of a phrase -> what may stand in its slot
    "name": "Xy",
    "same": "Xy",
    "description": "some Xy",
    "span": "about 1,300",
    "than": "the Xy",
    "initial": "X",
}


def test_every_template_over_every_type():
    wrong: dict[str, list[str]] = {}
    n = 0
    for r in relations():
        templates = [p for forward in (True, False) if forward or not r.literal for p in phrases(r, forward)]
        assert templates, r
        for sentence, p in templates:
            noun = spoken(p.type)
            text = p.before + FILLED.get(p.kind, "") + p.after
            if p.kind == "span" and r.range != "number":
                text = p.before + "in the 1990s" + p.after
            text = text if p.before else text[:1].upper() + text[1:]  # what fills a slot may begin a sentence
            whole = f"{text}." if sentence else f"the {noun} {text}"
            n += 1
            problems = faults(whole)
            if sentence and not text[0].isupper() or not sentence and text[0].isupper() and not text.startswith("Xy"):
                problems.append("letter")
            if (
                is_person(p.type)
                and re.match(r"(?:It|Its)\b", text)
                or not is_person(p.type)
                and re.match(r"who\b", text)
            ):
                problems.append("person")
            if problems:
                wrong[whole] = problems
        for text in (f"Name {re.sub('^an? ', 'the ', r.ask('Xy'))}.", r.sentence("Xy", ["Zz"])):
            n += 1
            if problems := faults(text):
                wrong[text] = problems
            assert SLOT not in text
    for type_ in TYPES:
        noun = spoken(type_)
        some = [o.format(a=article(noun, noun), t=noun) for o in OPENINGS]
        some += [f"{'' if sentence else f'the {noun} '}{p.before}X" for sentence, p in names(type_)]
        n += len(some)
        wrong |= {text: problems for text in some if (problems := faults(text))}
    assert n > 30_000
    assert not wrong, f"{len(wrong)} of {n}: " + json.dumps(
        dict(random.Random(0).sample([*wrong.items()], min(25, len(wrong)))), indent=1
    )


def test_roles_are_short_and_read_back():
    """ "The place of death of Xy" is the place that is it, though "the place of" begins other words too."""
    words = {"domain": "person", "range": "place", "functional": True}
    some = [
        Relation(name=key, label=LABELS[key], **words, **template_words(key, "person", "place"))
        for key in ("born_in", "died_in")
    ]
    some.append(Relation(name="age", domain="person", range="number", label="age", functional=True))
    realiser = Realiser(
        some, lambda x: x.partition(":")[2] or x, lambda t, name: [f"{t}:{name}"] if name == "Xy" else []
    )
    place = Node(type="place", clues=(Clue(relation="died_in", forward=False, target="person:Xy"),))
    pattern = Pattern(
        relation="age",
        forward=True,
        root=Node(type="person", clues=(Clue(relation="born_in", forward=True, target=place),)),
    )
    texts = {realiser.write(pattern, random.Random(i)) for i in range(20)}
    assert any("was born in the place of death of Xy" in t for t in texts)
    assert not [t for t in texts if [canonical(p) for p in realiser.read(t)] != [canonical(pattern)]]


def wordings(pattern: Pattern, *relations: Relation, n: int = 40) -> set[str]:
    """What n random numbers say of a question; each must read back as it. Names are the ends of ids."""
    literal = {r.name for r in relations if r.literal}

    def find(where: str, text: str) -> list[str]:
        return [text] if where in literal else [f"{where}:{text}"]

    realiser = Realiser(relations, lambda x: x.partition(":")[2] or x, find)
    texts = {realiser.write(pattern, random.Random(i)) for i in range(n)}
    assert not [t for t in texts if canonical(pattern) not in map(canonical, realiser.read(t))]
    return texts


def written(relation: Relation, clue: Clue, *others: Relation) -> set[str]:
    """Twenty wordings of a question about a clue alone."""
    size = Relation(name="size", domain=relation.domain, range="number", label="size", functional=True)
    pattern = Pattern(relation="size", forward=True, root=Node(type=relation.domain, clues=(clue,)))
    return wordings(pattern, relation, *others, size, n=20)


@pytest.mark.parametrize(
    "domain, label, value, want, never",
    [
        ("author", "occupation", "film director", "occupation is film director", "as their"),
        ("author", "occupation", "Crown Jeweller", "has Crown Jeweller as their occupation", "on the"),
        ("hut", "roof", "grass", "with grass as its roof", "on the"),
        ("hut", "coast", "south", "is on the south coast", "coast is|as its"),
        ("hut", "coast", "Amber Coast", "coast is Amber Coast", "Coast coast"),
    ],
)
def test_a_bare_word_has_a_phrase_that_suits_it(domain, label, value, want, never):
    r = Relation(name="r", domain=domain, range=label, label=label, functional=True)
    texts = written(r, Clue(relation="r", forward=True, target=f"{label}:{value}"))
    assert any(want in t for t in texts) and not any(re.search(never, t) for t in texts), texts


@pytest.mark.parametrize(
    "type_, place, inverse, said, never",
    [
        ("author", "country", "an author from {y}", "author is from Vesta", "is one"),
        ("publisher", "town", "a publisher in {y}", "publisher is in Vesta", "is one"),
        ("author", "town", "an author who was born in {y}", "author is one who was born in Vesta", "one that"),
        ("publisher", "patron", "", "publisher is one whose patron is Vesta", "one of which"),
    ],
)
def test_a_thing_told_before_is_short(type_, place, inverse, said, never):
    """ "A book whose author is from Vesta", not "whose author is one who is from Vesta"."""
    made = Relation(name="made", domain="book", range=type_, label=type_, functional=True)
    words = {"inverse": inverse} if inverse else {}
    home = Relation(name="home", domain=type_, range=place, label=place, functional=True, **words)
    node = Node(type=type_, clues=(Clue(relation="home", forward=True, target=f"{place}:Vesta"),))
    texts = written(made, Clue(relation="made", forward=True, target=node), home)
    assert any(said in t for t in texts) and not any(never in t for t in texts), texts


def test_one_of_several_is_followed_by_its_description():
    """ "One of whose partners is a country whose ...", not "has a country whose ... as one of its partners"."""
    partners = Relation(name="partners", domain="country", range="country", label="partners")
    capital = Relation(name="capital", domain="country", range="city", label="capital", functional=True)
    node = Node(type="country", clues=(Clue(relation="capital", forward=True, target="city:Rye"),))
    node = Node(type="country", clues=(Clue(relation="partners", forward=True, target=node),))
    texts = written(partners, Clue(relation="partners", forward=True, target=node), capital)
    assert any("one of whose partners is a country one of whose partners is a country " in t for t in texts), texts
    assert any("One of the partners of this country is a country one of whose partners is " in t for t in texts), texts
    assert not [t for t in texts if "as one of" in t]
    back = Node(type="country", clues=(Clue(relation="partners", forward=False, target="country:Rye"),))
    texts = written(partners, Clue(relation="partners", forward=True, target=back))
    assert any("country is one of the partners of Rye" in t for t in texts)
    assert not [t for t in texts if re.search("is one (?:that|which) is one of", t)]
    named = written(partners, Clue(relation="partners", forward=True, target="country:Rye"))
    assert any("has Rye as one of its partners" in t for t in named) and not [t for t in named if "whose" in t]

    clues = (Named(initial="A", words=0), Clue(relation="partners", forward=True, target=node))
    pattern = Pattern(relation="capital", forward=True, root=Node(type="country", clues=clues))
    texts = wordings(pattern, partners, capital)
    assert any(" and one of whose partners is a country " in t for t in texts), texts


def test_an_author_wrote_a_book():
    author = Relation(name="author", domain="book", range="author", label="author", functional=True)
    age = Relation(name="age", domain="author", range="number", label="age", functional=True)
    clue = Clue(relation="author", forward=False, target="book:Fog")
    pattern = Pattern(relation="age", forward=True, root=Node(type="author", clues=(clue, Named(initial="A", words=0))))
    texts = wordings(pattern, author, age, n=20)
    assert all("wrote Fog" in t for t in texts), texts


def test_of_none_stands_alone():
    """ "The painting that is the subject of no loan, ...", not "the painting of no loan, that ..."."""
    loan = Relation(name="painting", domain="loan", range="painting", label="painting", complete=True, functional=True)
    year, age = (Relation(name=n, domain="painting", range="year", label=n, functional=True) for n in ("year", "age"))
    clues = (
        Clue(relation="painting", forward=False, target=Nothing()),
        Named(initial="M", words=0),
        Clue(relation="year", forward=True, target=Span(low=1890, high=1899, said="in the 1890s")),
    )
    pattern = Pattern(relation="age", forward=True, root=Node(type="painting", clues=clues))
    texts = wordings(pattern, loan, year, age, n=60)
    assert any("is the subject of no loan" in t for t in texts) and not [t for t in texts if "painting of no" in t]


def test_a_thing_that_has_another_is_asked_for_by_which():
    words = phrased("ferry to", "island", "island")
    ferry = Relation(name="ferry", domain="island", range="island", functional=True, **words)
    crop = Relation(name="crop", domain="island", range="crop", label="crop", functional=True)
    pattern = Pattern(
        relation="ferry",
        forward=True,
        root=Node(type="island", clues=(Clue(relation="crop", forward=True, target="crop:Rye"),)),
    )
    texts = wordings(pattern, ferry, crop)
    asked = {re.search(r"\w+ is the island with", t)[0] for t in texts if t.endswith("?") and "Can you" not in t}
    assert asked == {"Which is the island with"}


@pytest.mark.parametrize("label, asked", [("head of government", "Who is"), ("highest point", "What is")])
def test_a_text_that_is_somebody_is_asked_for_by_who(label, asked):
    r = Relation(name="r", domain="country", range="string", label=label, functional=True)
    pattern = Pattern(relation="r", forward=True, root=Node(type="country", clues=(Named(initial="A", words=0),)))
    texts = wordings(pattern, r)
    assert {t.split(f" the {label}")[0].split(". ")[-1] for t in texts if "Can you" not in t and t.endswith("?")} == {
        asked
    }


@pytest.mark.parametrize(
    "name, type_, said",
    [
        ("Alpine Club of Vesta", "owner", "the Alpine Club of Vesta"),
        ("Friends of the Fells", "owner", "the Friends of the Fells"),
        ("Friends of the Fells", "film", "Friends of the Fells"),
        ("Coast Line", "railway_line", "the Coast Line"),
        ("Coast Line", "painting", "Coast Line"),
        ("Anna Berg", "owner", "Anna Berg"),
    ],
)
def test_names_that_english_gives_an_article(name, type_, said):
    assert with_article(name, type_) == said


@pytest.mark.parametrize(
    "words, range_, said",
    [
        (template_words("school", "person", "school"), "school", "studied at the same school as Ann"),
        (phrased("birthplace", "person", "town"), "town", "was born in the same town as Ann"),
        (wording("country", "person", "country", single=True), "country", "is from the same country as Ann"),
        (wording("home town", "person", "town", single=True), "town", "has the same home town as Ann"),
    ],
)
def test_what_two_people_share_is_said_as_what_one_has(words, range_, said):
    r = Relation(name="r", domain="person", range=range_, functional=True, **{"label": range_, **words})
    other = Node(type=range_, clues=(Clue(relation="r", forward=False, target="person:Ann"),))
    texts = written(r, Clue(relation="r", forward=True, target=other))
    assert any(said in t for t in texts), texts
