"""Parses what a page's subject is, from its first sentence: "1952 American musical comedy film" is a film, of a year, a
nationality and a genre.

    kind = [year] { nationality } words head        the head decides the type: film, person, album, village, ...

A phrase without a known head is not a kind: "the second son", "a member of the band".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from synth.knowledge.words import SITES, singular

_WORKS = {  # head -> type
    **dict.fromkeys(("film", "movie", "documentary", "picture", "anime film"), "film"),
    **dict.fromkeys(("album", "soundtrack"), "album"),
    **dict.fromkeys(("song", "single"), "song"),
    **dict.fromkeys(("novel", "book", "novella", "memoir"), "book"),
    **dict.fromkeys(("band", "duo", "trio", "orchestra"), "band"),
    **dict.fromkeys(("company", "manufacturer", "airline", "bank", "brewery", "label"), "company"),
    **{"magazine": "magazine", "newspaper": "newspaper", "opera": "opera", "play": "play", "painting": "painting"},
}
_TWO = {
    **{"television series": "series", "tv series": "series", "web series": "series", "video game": "game"},
    **{"sitcom": "series", "television film": "film", "motion picture": "film", "record label": "company"},
    **{"railway station": "station"},
    **{"football club": "club", "secondary school": "school", "high school": "school"},
}
_PERSONS = frozenset(
    "king queen prince princess duke duchess count countess emperor empress nobleman noblewoman saint bishop archbishop "
    "pope monk nun abbot abbess priest knight actor actress singer songwriter director producer screenwriter writer "
    "author poet playwright novelist journalist editor politician lawyer judge diplomat soldier officer general admiral "
    "footballer cricketer player athlete swimmer boxer wrestler cyclist sprinter golfer coach manager referee jockey "
    "composer conductor pianist guitarist drummer violinist cellist organist musician rapper dancer choreographer "
    "painter sculptor architect photographer illustrator cartoonist designer filmmaker cinematographer animator "
    "scientist physicist chemist biologist mathematician astronomer engineer inventor physician surgeon psychologist "
    "philosopher historian economist theologian linguist archaeologist businessman businesswoman entrepreneur banker "
    "activist model comedian presenter broadcaster anchor philanthropist socialite explorer pilot astronaut teacher "
    "professor educator academic scholar critic translator publisher statesman noble baron baroness earl marquess "
    "margrave landgrave elector sultan shah caliph ruler monarch regent chieftain empress consort heiress aristocrat "
    "racer skier skater gymnast rower fencer tennis fighter sailor preacher rabbi imam minister senator governor mayor "
    "president chancellor librarian botanist zoologist geologist entomologist orator screenplay vocalist soprano tenor "
    "baritone bassist saxophonist trumpeter lyricist impresario".split()
) - {"screenplay", "tennis"}
NATIONS = frozenset(
    "Afghan Albanian Algerian American Andorran Angolan Argentine Argentinian Armenian Australian Austrian Azerbaijani "
    "Bangladeshi Belarusian Belgian Bengali Bolivian Bosnian Brazilian British Bulgarian Burmese Byzantine Cambodian "
    "Cameroonian Canadian Catalan Chilean Chinese Colombian Congolese Croatian Cuban Cypriot Czech Czechoslovak Danish "
    "Dutch Ecuadorian Egyptian Emirati English Estonian Ethiopian Filipino Finnish Flemish French Frankish Georgian "
    "German Ghanaian Greek Guatemalan Haitian Hungarian Icelandic Indian Indonesian Iranian Iraqi Irish Israeli Italian "
    "Jamaican Japanese Jordanian Kazakh Kazakhstani Kenyan Korean Kosovar Kuwaiti Latvian Lebanese Lithuanian "
    "Luxembourgish Macedonian Malaysian Maltese Mexican Moldovan Mongolian Moroccan Nepalese Nepali Nigerian Norwegian "
    "Ottoman Pakistani Palestinian Panamanian Paraguayan Persian Peruvian Polish Portuguese Prussian Roman Romanian "
    "Russian Rwandan Saudi Scottish Senegalese Serbian Singaporean Slovak Slovene Slovenian Somali Soviet Spanish "
    "Sudanese Swedish Swiss Syrian Taiwanese Tanzanian Thai Tunisian Turkish Ugandan Ukrainian Uruguayan Uzbek "
    "Venezuelan Vietnamese Welsh Yugoslav Zambian Zimbabwean".split()
)
_TWO_NATIONS = {
    "New Zealand",
    "South Korean",
    "North Korean",
    "South African",
    "Sri Lankan",
    "Hong Kong",
    "East German",
}
_TWO_NATIONS |= {"West German", "Saudi Arabian", "Costa Rican", "Puerto Rican", "Dominican"}
_ABOUT = {"person", "film", "album", "song", "book", "series", "game", "band", "opera"}  # have genre or occupation
_LEFT_OUT = frozenset(
    "the a an former retired late famous noted notable prominent upcoming professional popular first second third fourth "
    "fifth sixth seventh eighth ninth tenth last only eldest youngest female male current longtime two three four five "
    "lead debut solo studio lost surviving independently made low budget cancelled unreleased".split()
)
_LENGTH = re.compile(r"(?:\d+|one|two|three|four|five|six)-(?:minute|reel|part|hour)")
_YEAR = re.compile(r"1[6-9]\d\d|20[0-2]\d")


_JOINED = re.compile(
    r"(?:, (?!an?\b|the\b)[a-z-]+){0,3},? and (?!an?\b|the\b)(?:[\w'\u2019-]+ ){1,2}?(?P<head>[a-z]+)\b"
)


class Kind(NamedTuple):
    """type: of the thing; year: of a work, or ""; nationalities; about: genre of a work, occupation of a person, or
    ""; as the text has them."""

    type: str
    year: str
    nationalities: tuple[str, ...]
    about: str


def joined(text: str, rest: str) -> str:
    """The text of a kind that was cut at a comma or an "and" before the head of a person: "American film", if " and
    television director" follows, is a director, not a film."""
    m = _JOINED.match(rest)
    if m is None or m["head"] not in _PERSONS or text.split()[-1].lower() in _PERSONS:
        return text
    return text + m[0]


def kind_of(text: str) -> Kind | None:
    """The parts of a kind; None if its head is unknown here."""
    words = re.sub(r"\s*[-\N{EN DASH}]\s*", "-", text.replace(",", " ")).split()
    years = [w for w in words if _YEAR.fullmatch(w)]
    year = years[0] if years else ""
    words = [w for w in words if w not in years]
    nations: list[str] = []
    rest: list[str] = []
    i = 0
    while i < len(words):
        pair = " ".join(words[i : i + 2])
        if pair == "Roman Catholic":
            i += 2
            continue
        if pair in _TWO_NATIONS:
            nations.append(pair)
            i += 2
            continue
        parts = re.sub(r"-(?:born|based|language)$", "", words[i]).split("-")
        if parts[0] in NATIONS and all(p in NATIONS for p in parts):
            nations += parts if not words[i].endswith(("-born", "-language")) else []
        elif (
            words[i].lower() not in _LEFT_OUT and not words[i].endswith("-language") and not _LENGTH.fullmatch(words[i])
        ):
            rest.append(words[i])
        i += 1
    if not rest:
        return None
    head, two = singular(rest[-1].lower()), " ".join(rest[-2:]).lower()
    if two in _TWO:
        type_, about = _TWO[two], rest[:-2]
    elif head in _WORKS:
        type_, about = _WORKS[head], rest[:-1] if head != "documentary" else rest
    elif head in SITES:
        type_, about = head, []
    elif rest[-1].lower() in _PERSONS:
        type_, about = "person", rest
    else:
        return None
    if type_ not in _ABOUT:
        about = []
    # a capital letter begins a name that the pattern cut: "film Casablanca"; "Telugu" is a language
    subject = " ".join(about) if all(w[:1].islower() or w[:1].isdigit() for w in about) and len(about) <= 4 else ""
    return Kind(type_, year, tuple(dict.fromkeys(nations)), subject)
