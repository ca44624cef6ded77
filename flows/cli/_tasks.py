"""Commands by task: the first screen of `espalier`, and the list of all commands."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping

# task -> its commands; those before the bar are on the first screen. Every command stands here once (a test).
TASKS = {
    "start here": "init preview run | help doctor completion schema",
    "your data": "kb clean | audit review pairs prompts questions measure search verify families env selfplay",
    "train": "train recipes | sweep estimate show check",
    "look": "compare why chat | lineage curves transfer ui",
    "operate": "schedule | submit deploy worker status stop promote merge export serve sync gc",
}


def listed(help_of: Mapping[str, str], everything: bool = False) -> str:
    """The commands by task, one line each: those of the first screen, or all."""
    width = min(shutil.get_terminal_size().columns, 110)
    lines: list[str] = []
    for task, names in TASKS.items():
        lines += ["", f"{task}:"]
        for name in (names.replace("|", "") if everything else names.split("|")[0]).split():
            lines += textwrap.wrap(help_of[name], width, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)
    return "\n".join(lines[1:])


def screen(help_of: Mapping[str, str], everything: bool = False) -> str:
    """What `espalier --help` (or `espalier help`) prints."""
    top = (
        "usage: espalier COMMAND ...\n\n"
        "Grow verified training data and train language models on it, as one reproducible pipeline.\n\n"
    )
    more = "" if everything else f"espalier help            all {len(help_of)} commands, by task\n"
    return f"{top}{listed(help_of, everything)}\n\n{more}espalier COMMAND --help  what one command takes\n"
