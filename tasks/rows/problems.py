"""Problems of the user's own for the stage `problems`, in the layouts of `synth/testsets/layouts`.

Further keys of an entry: `layout` (plain unless said) and its options: `question` and `answer` name the columns,
`verifier` and `env` stand for all rows that name none of their own, `ask` is what is added to each question. `name` is
the family under which the problems are measured (the name of the file), `check: false` keeps rows whose own answer does
not score 1. A verifier or an environment of the user's own lies in `pieces/verifier` or `pieces/env`. The field `images`
of a row holds the pictures that its last question shows (tasks/rows/pictures.py), each at an `<image>` of the text; a
text without one shows them first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from synth.scenes import draw
from synth.scenes.scenes import CELL
from synth.types import Message, Problem, Quarantined, Scored, seed_for
from synth.verify import verify
from tasks.core.errors import UserError, nearest
from tasks.rows import pictures, read
from tasks.planning import code, pieces
from tasks.runtime.stage import Stage
from synth.pictures import HELD

ABSENT = object()  # of a row without the field `images`: then PLACE is text
PLACE = "<image>"  # in a message with pictures (training/model/render.py)
SIDE = re.compile(r"\w+ of (\d+)")  # in the description of a picture
MOST = 1024  # pixels of a side
KEYS = {"layout", "check", "name"}


def problems(
    stage: Stage, files: Sequence[Any], protect: Sequence[str] = (), rows_per_shard: int = read.ROWS_PER_SHARD
) -> read.ReadRows:
    """The problems of all files. Raises UserError for a file that yields none, and for a layout, verifier or
    environment that does not exist."""
    known = {kind: pieces.files(kind) for kind in ("layout", "verifier", "env")}
    weights = [e.weight for e in read.entries(stage.name, files, KEYS | _options(known["layout"]))]

    def make(entry: read.Entry, rows: Iterable[Any]) -> Iterator[tuple[str, Problem] | Quarantined]:
        more = entry.more
        for kind in known:
            if (name := more.get(kind)) and str(name).replace("-", "_") not in known[kind]:
                raise UserError(f"{entry.where}: there is no {kind} {name!r}: {nearest(str(name), known[kind])}")
        layout = pieces.find("layout", str(more.get("layout", "plain")))
        takes = {p.name for p in inspect.signature(layout).parameters.values() if p.kind is p.KEYWORD_ONLY}
        if wrong := sorted(set(more) - KEYS - takes):
            raise UserError(f"{entry.where}: the layout reads no {wrong[0]!r}: {nearest(wrong[0], takes | KEYS)}")
        knobs = {k: v for k, v in more.items() if k in takes}
        family = str(more.get("name") or Path(entry.name).stem).replace(",", "_")
        knobs["name"] = family
        share = entry.weight / max(weights)
        full = stage.root / entry.path
        folder = full if full.is_dir() else full.parent if full.is_file() else None
        for index, item in enumerate(rows):
            if isinstance(item, Quarantined):
                yield item
                continue
            place, row = item
            try:
                if not isinstance(row, Mapping):
                    raise ValueError(f"not_an_object: {row!r:.200}")
                problem = _shown(layout(row, index, **knobs), row.get("images", ABSENT), folder)
                _fits(problem, known, bool(more.get("check", True)))
            except ValueError as e:
                reason, _, evidence = str(e).partition(":")
                yield Quarantined(id=place, stage=stage.name, reason=reason, evidence=evidence.strip())
                continue
            question = read.asked_by(problem)
            split = read.split_for(entry, row, question)
            if split == "train" and seed_for(stage.seed, "weight", problem.id) / 2**63 >= share:
                why = (
                    f"weight {entry.weight:g} beside {max(weights):g}: {share:.0%} of the rows of this file are played"
                )
                yield Quarantined(id=place, stage=stage.name, reason="weight", evidence=why)
                continue
            lineage = {**problem.lineage, "root": read.root_of(question), "file": entry.path, "place": place}
            yield place, replace(problem, family=family, lineage=lineage, split=split)

    return read.read(
        stage,
        files,
        make,
        Problem,
        more=KEYS | _options(known["layout"]),
        protect=protect,
        rows_per_shard=rows_per_shard,
    )


def _shown(problem: Problem, images: Any, folder: Path | None) -> Problem:
    """The problem with its pictures, which this process then holds. Raises ValueError for one that cannot be shown."""
    if images is ABSENT or images is None or (isinstance(images, list | tuple) and not images):
        if images is not ABSENT and PLACE in problem.question:
            raise ValueError(f"pictures: the row has none, and its text {problem.question.count(PLACE)} places {PLACE}")
        return problem
    names = tuple(
        HELD.add(pictures.decoded(one, folder)) for one in (images if isinstance(images, list | tuple) else [images])
    )
    at = max(i for i, m in enumerate(problem.prompt) if m.role == "user")
    text = problem.prompt[at].content
    if PLACE not in text:
        text = PLACE * len(names) + text
    if text.count(PLACE) != len(names):
        raise ValueError(f"pictures: the row has {len(names)} and its text {text.count(PLACE)} places {PLACE}")
    shows = Message(role="user", content=text, media=names)
    with_pictures = Problem.make(
        prompt=(*problem.prompt[:at], shows, *problem.prompt[at + 1 :]),
        answer=problem.answer,
        verifier=problem.verifier,
        args=problem.args,
        family=problem.family,
        split=problem.split,
    )
    return replace(problem, id=with_pictures.id, prompt=with_pictures.prompt)


def _options(layouts: Mapping[str, Path]) -> set[str]:
    return {
        p.name
        for name in layouts
        for p in inspect.signature(pieces.find("layout", name)).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    } - {"split"}


def _fits(problem: Problem, known: Mapping[str, Mapping[str, Path]], check: bool) -> None:
    """Raises ValueError for a problem whose verifier or environment does not exist, whose environment would draw a picture that it
    does not describe, or whose own answer is wrong."""
    for kind, name in (("verifier", problem.verifier), ("env", problem.env)):
        if name.replace("-", "_") not in known[kind]:
            raise ValueError(f"unknown_{kind}: {name!r}: {nearest(name, known[kind])}")
    if "draw" in code.constant(known["env"][problem.env.replace("-", "_")], "TOOLS", ""):
        try:
            side = SIDE.match(problem.question)
            if side and (int(side[1]) % CELL or not 0 < int(side[1]) <= MOST):
                raise ValueError(
                    f"{problem.question[:80]!r} has a side of {side[1][:9]} pixels: {CELL}, {2 * CELL}, ... up to {MOST}"
                )
            draw(problem)
        except ValueError as e:
            raise ValueError(
                f'no_picture: {problem.env} draws what the lines before the last describe (`ask: ""` adds no line), and {e}'
            ) from None
    if check and not problem.lineage.get("unanswered"):
        score = verify(problem, problem.answer)
        if not isinstance(score, Scored) or score.value != 1.0:
            raise ValueError(
                f"wrong_reference: {problem.verifier} gives {score} to the row's own answer {problem.answer!r:.80}"
            )
