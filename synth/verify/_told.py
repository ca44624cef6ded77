"""Questions of games for two, read in any wording of their family: by the facts that each wording tells."""

from __future__ import annotations

import re
from collections.abc import Mapping


def told(said: Mapping[str, str], *facts: str) -> re.Pattern[str]:
    """A whole question that tells each of the facts somewhere, and in the group "rule" one of the sentences about a partner.

    said   rule -> the sentence about it     facts   regular expressions, whose groups come first, in their order
    """
    each = "".join(f"(?=.*\\b{fact})" for fact in facts)
    return re.compile(rf"{each}(?=.*\b(?P<rule>{'|'.join(said.values())})\.).*", re.DOTALL)
