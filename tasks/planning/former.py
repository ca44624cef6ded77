"""Former names of pieces and of their folders, each with the name that is valid now.

They are refused like every unknown name, because two names for one piece would drift apart; the message gives the new
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tasks.core.paths import KIND_OF, KINDS, own

# Former folder of pieces -> their kind.
FOLDERS = {
    "synth.clean": "cleaner",
    "synth.layouts": "layout",
    "synth.make.families": "family",
    "synth.make.pairs": "pair_maker",
    "synth.propose": "proposer",
    "synth.searchers": "searcher",
    "synth.solve": "solver",
    "synth.sources": "source",
    "training.advantage": "advantage",
    "training.correct": "correction",
    "training.curriculum": "curriculum",
    "training.evaluate": "metric",
    "training.filter": "filter",
    "training.guide": "group_transform",
    "training.head": "reward_head",
    "training.overlap": "asynchrony",
    "training.placement": "placement",
    "training.prefer": "preference_loss",
    "training.ratio": "ratio",
    "training.regulariser": "regulariser",
    "training.reward": "reward",
    "training.rl.overlap": "asynchrony",
    "training.schedule": "turn_budget",
    "training.surrogate": "policy_loss",
    "training.tools": "tool",
    "training.value_loss": "value_loss",
}
# Former kind/name -> the name of the same kind now.
PIECES = {"metric/behaviour": "format_and_refusal"}


def kind_now(folder: str) -> str:
    """The kind whose pieces a folder or kind of this name holds or held; "" if there is none."""
    return folder if folder in KINDS else KIND_OF.get(folder) or FOLDERS.get(folder, "")


def piece_now(written: str, kind: str = "") -> str:
    """`kind/name` of today for a name with or without its folder (`training.advantage/gigpo`; without: of `kind`); "" if
    the folder is unknown."""
    folder, _, name = written.rpartition("/")
    kind = kind_now(folder) if folder else kind_now(kind)
    name = name.replace("-", "_")
    return f"{kind}/{PIECES.get(f'{kind}/{name}', name)}" if kind and name else ""


def hint(kind: str, written: str, known: Mapping[str, Path]) -> str:
    """The end of a sentence about an unknown piece of a kind: what to write now, or where its file must lie now. "" if
    the name is no former one."""
    now = piece_now(written, kind)
    of, _, name = now.rpartition("/")
    if of == kind and name in known:
        return f"it is {now} now: write {name}" if of != written.rpartition("/")[0] else f"write {name} alone"
    if of and of != kind:
        return f"{now} is a piece of {of}, and here a piece of {kind} is needed"
    return misplaced(kind, f"{written.replace('-', '_')}.py")


def misplaced(kind: str, file: str) -> str:
    """The end of a sentence about an unknown piece or recipe whose file lies in a former folder of the user's own; "" if
    none does."""
    for root in own():
        for folder, held in [*FOLDERS.items(), *KIND_OF.items()]:
            path = root.joinpath(*folder.split("."), file)
            if held == kind and path.is_file():
                return f"{path} is in a former folder: move it to {root / kind}"
    return ""
