"""A person decides about pairs, blindly, one at a time and never twice; the decisions become anchors of the stage
`clean`.

A hash decides which side is shown first, so that the position reveals neither the label nor the cleaner.
Every decision is appended as a line and flushed at once; the last line about a pair counts, so an undo is a line too.
With `clean.reviews` naming the file, a decision becomes the column `anchor` of its pair: 1 = the label is right, -1 =
it is wrong; a tie sets no anchor.
"""

from __future__ import annotations

import getpass
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from synth.types import PreferencePair, digest
from tasks.core.errors import UserError
from tasks.storage import commit
from tasks.storage.reviews import content, decisions, is_flipped, read

Verdict = Literal["first", "second", "tie", "skip"]
VERDICTS = ("first", "second", "tie", "skip")


@dataclass(frozen=True)
class Shown:
    """A pair as shown to a person: `first` and `second` are its sides in the order of a hash; `swapped`: the chosen
    side is the second."""

    pair: PreferencePair
    swapped: bool

    @property
    def sides(self) -> tuple[str, str]:
        chosen, rejected = self.pair.chosen, self.pair.rejected
        return (rejected, chosen) if self.swapped else (chosen, rejected)

    def label(self, verdict: Verdict) -> int | None:
        """1 if the verdict agrees with the label, -1 if it does not, 0 for a tie, None for a skip. The label is the
        original one, even if a cleaner has flipped it since."""
        if verdict in ("tie", "skip"):
            return 0 if verdict == "tie" else None
        return 1 if ((verdict == "second") == self.swapped) != is_flipped(self.pair) else -1


class Review:
    """Decisions about the pairs of a file, kept in `to`. `asked`: only pairs that a cleaner asks about; else `sample`
    pairs by hash (0: all).

    Raises UserError for a file that holds no pairs, and if there is nothing to decide about.
    """

    def __init__(self, path: Path, to: Path, *, sample: int | None = None, reviewer: str = "") -> None:
        self.to, self.reviewer = to, reviewer or getpass.getuser()
        pairs = read(path)
        to_decide = [p for p in pairs if p.decisions and p.decisions[-1].action == "ask"]
        # pairs that a cleaner asked about are not a random sample, so they do not tell how many other labels are wrong
        self.drawn = "asked" if sample is None or len(to_decide) == len(pairs) else "sample"
        if sample is None:
            pairs = to_decide
            if not pairs:
                raise UserError(
                    f"no cleaner asks about a pair of {path}: look at some of all with --sample 50 (0: every pair)"
                )
        pairs.sort(key=lambda p: digest("review", p.id))
        self.pairs = pairs[:sample] if sample else pairs
        self.decided = decisions(to)
        self._since = time.monotonic()
        self._order: list[str] = []  # the decisions of this sitting, for undo

    @property
    def left(self) -> int:
        return sum(p.id not in self.decided for p in self.pairs)

    def next(self) -> Shown | None:
        """The next pair to decide about, None if all are decided."""
        pair = next((p for p in self.pairs if p.id not in self.decided), None)
        return None if pair is None else Shown(pair, int(digest("order", pair.id)[:8], 16) % 2 == 1)

    def decide(self, shown: Shown, verdict: Verdict) -> None:
        """Appends the verdict. Raises ValueError for a word that is not in VERDICTS."""
        if verdict not in VERDICTS:
            raise ValueError(f"the verdict {verdict!r} is none of {', '.join(VERDICTS)}")
        seconds = round(time.monotonic() - self._since, 1)
        self._append(
            {
                "id": shown.pair.id,
                "content": content(shown.pair),
                "label": shown.label(verdict),
                "verdict": verdict,
                "drawn": self.drawn,
                "swapped": shown.swapped,
                "seconds": seconds,
                "reviewer": self.reviewer,
                "shown": digest(list(shown.sides))[:16],
            }
        )
        self._order.append(shown.pair.id)

    def undo(self) -> bool:
        """Takes back the last decision of this sitting; False if there is none."""
        if not self._order:
            return False
        self._append({"id": self._order.pop(), "verdict": "undone", "reviewer": self.reviewer})
        return True

    def _append(self, line: Mapping[str, Any]) -> None:
        commit.make_folder(self.to.parent)
        new = not self.to.exists()
        with self.to.open("a+b") as f:
            _whole(f)
            f.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
        if new:
            commit.flush(self.to.parent)
        self._since = time.monotonic()
        if line["verdict"] == "undone":
            self.decided.pop(line["id"], None)
        else:
            self.decided[line["id"]] = dict(line)

    def summary(self) -> list[str]:
        """The decisions, and how often a person agrees with each cleaner that would act, with Wilson's interval."""
        from training.metrics._tests import wilson

        known = {p.id: p for p in self.pairs}
        mine = [(known[i], d["label"]) for i, d in self.decided.items() if i in known]
        count = Counter(label for _, label in mine)
        out = [
            f"{len(mine)} decided: {count[1]} labels right, {count[-1]} wrong, {count[0]} ties, {count[None]} skipped; {self.left} left"
        ]
        for step in sorted({d.step for p, _ in mine for d in p.decisions if d.action != "keep"}):
            acted = [
                label
                for p, label in mine
                if label in (1, -1) and any(d.step == step and d.action != "keep" for d in p.decisions)
            ]
            wrong = sum(label == -1 for label in acted)
            low, high = wilson(wrong, len(acted))
            share = f"{wrong / max(1, len(acted)):.0%} [{low:.0%}, {high:.0%}]"
            out.append(f"{step}: of {len(acted)} labels that it doubts {wrong} are wrong ({share})")
        return out


def _whole(file: IO[bytes]) -> None:
    """Ends the last line of a file that is open for appending. A line that was cut while it was written is removed, so
    that it does not spoil the next one."""
    file.seek(0)
    data = file.read()
    begin = data.rfind(b"\n") + 1
    if begin == len(data):
        return
    try:
        json.loads(data[begin:])
        file.write(b"\n")
    except ValueError:
        file.truncate(begin)
