"""RDF: N-Triples and Turtle, by rdflib (extra `files`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from synth.knowledge.ingest import THING, Row
from synth.knowledge.office import library
from synth.knowledge.rows import Reading
from synth.knowledge.text import tidy

FORMATS = {".nt": "nt", ".ttl": "turtle"}
_LABEL, _TYPE = "http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]+")


def rdf_triples(path: Path, name: str, *, language: str = "en") -> Reading:
    """Read a graph. Things are called as their rdfs:label in `language` says, else in no language, else as the end of
    their address; further labels are other names, and rdf:type is their type. What an address names is a thing too
    if nothing else is stated of it. A literal in another language is no fact.
    A statement about a thing without an address is quarantined. A graph has no order: rows are sorted by their text.

    Raises ValueError for a file that is neither, or holds no statement, or without rdflib.
    """
    rdflib = library("rdflib", "RDF")
    try:
        graph = rdflib.Graph().parse(path, format=FORMATS.get(path.suffix.lower(), "turtle"))
    except (OSError, SyntaxError, ValueError, rdflib.exceptions.Error) as e:
        raise ValueError(f"{name} is not RDF ({' '.join(str(e).split())[:200]}): fix it") from e
    triples = sorted(graph, key=lambda t: tuple(x.n3() for x in t))
    if not triples:
        raise ValueError(f"{name} holds no statement: add some, or take it out of the list of sources")
    labels: dict[Any, list[str]] = {}
    types: dict[Any, str] = {}
    for s, p, o in sorted(triples, key=lambda t: getattr(t[2], "language", None) != language):  # the wanted ones first
        if str(p) == _LABEL and getattr(o, "language", None) in (None, language):
            labels.setdefault(s, []).append(tidy(str(o)))
        elif str(p) == _TYPE and isinstance(o, rdflib.URIRef):
            types.setdefault(s, _words(str(o)).lower().replace(" ", "_"))
    things = _things(triples, types)
    reading = Reading()
    called = lambda x: labels[x][0] if labels.get(x) else _end(str(x))  # noqa: E731
    for x, others in labels.items():
        if others[1:]:
            reading.aliases[types.get(x, "thing"), others[0]] = tuple(dict.fromkeys(others[1:]))
    for number, (s, p, o) in enumerate(triples, 1):
        place, span = f"{name} statement {number}", f"{s.n3()} {p.n3()} {o.n3()}"
        if str(p) in (_LABEL, _TYPE) or getattr(o, "language", None) not in (None, language):
            continue
        if isinstance(s, rdflib.BNode) or isinstance(o, rdflib.BNode):
            why = "a thing without an address has no name to be asked for: give it one, with a label"
            reading.quarantine("blank_node", place, why, span)
            continue
        literal = isinstance(o, rdflib.Literal)
        row = Row(
            subject=called(s),
            relation=_words(str(p)).lower().replace(" ", "_"),
            object=tidy(str(o)) if literal else called(o),
            subject_type=types.get(s, ""),
            object_type="" if literal else types.get(o, THING if p in things else ""),
            source=place,
            span=span,
        )
        reading.rows.append(row)
    return reading


def _things(triples: Sequence[Any], types: Mapping[Any, str]) -> set[Any]:
    """The predicates most of whose objects are addresses, none with a type and at most half of them subjects: `infer`
    would take them for texts."""
    objects: dict[Any, list[Any]] = {}
    for _, p, o in triples:
        objects.setdefault(p, []).append(o)
    subjects = {s for s, p, _ in triples if str(p) not in (_LABEL, _TYPE)}
    return {
        p
        for p, some in objects.items()
        if 2 * sum(type(o).__name__ == "URIRef" for o in some) > len(some)
        and not any(o in types for o in some)
        and 2 * sum(o in subjects for o in some) <= len(some)
    }


def _end(address: str) -> str:
    """The last part of an address, as words."""
    return tidy(unquote(re.split(r"[/#]", address.rstrip("/#"))[-1]).replace("_", " "))


def _words(address: str) -> str:
    return tidy(_WORDS.sub(" ", _end(address)))
