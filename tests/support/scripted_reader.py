"""A model that reads sentences by a script, for tests of `synth.knowledge.model_facts`: it writes the lines that it is given
for a sentence, and fills gaps as it knows better or as it claimed."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from synth.knowledge.documents import Document
from synth.knowledge.model_facts import EXTRACT, OBJECT, SUBJECT

PROMPT = re.compile(r"(\d+)\. (.*)")
GAP = re.compile(r'"[^\n]*?": (?P<sentence>.*)\n(?P<subject>.*) \| (?P<relation>.*) \| (?P<object>.*)\n')


@dataclass
class Page:
    """title; sentences, and for each the right facts (subject, relation, object)."""

    title: str
    sentences: list[str] = field(default_factory=list)
    facts: list[list[tuple[str, ...]]] = field(default_factory=list)

    @property
    def document(self) -> Document:
        return Document(id=f"{self.title}.txt", title=self.title, text=" ".join(self.sentences))


def read_pages(path: Path) -> list[Page]:
    """The pages of a file of sentences (its first line says how it is written)."""
    pages: list[Page] = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        mark, text = line[:2], line[2:]
        if mark == "# ":
            pages.append(Page(text))
        elif mark == "- ":
            pages[-1].sentences.append(text)
            pages[-1].facts.append([])
        elif mark == "= ":
            pages[-1].facts[-1].append(tuple(text.split(" | ")))
    return pages


@dataclass
class Reader:
    """written: sentence -> the lines that it writes; knows: sentence -> the facts by which it fills gaps."""

    written: dict[str, list[tuple[str, ...]]]
    knows: dict[str, list[tuple[str, ...]]]
    asked: list[str] = field(default_factory=list)

    def answer(self, prompt: str) -> str:
        self.asked.append(prompt)
        if prompt.startswith(EXTRACT.partition("{")[0]):
            lines = []
            for number, sentence in PROMPT.findall(prompt.rpartition("Sentences of a text about")[2]):
                lines += [" | ".join((number, *fact)) for fact in self.written.get(sentence, ())]
            return "\n".join(lines)
        assert prompt.startswith((OBJECT.partition("{")[0], SUBJECT.partition("{")[0]))
        gap = GAP.search(prompt.rpartition("Sentence of a text about")[2])
        assert gap is not None, prompt
        found = []
        for subject, relation, object in self.knows.get(gap["sentence"], ()):
            if gap["object"] == "____" and (subject, relation) == (gap["subject"], gap["relation"]):
                found.append(object)
            elif gap["subject"] == "____" and (relation, object) == (gap["relation"], gap["object"]):
                found.append(subject)
        return ", ".join(dict.fromkeys(found)) or "none"

    def __call__(self, prompts):
        return [self.answer(prompt) for prompt in prompts]
