"""Text as it is kept: one form of Unicode, one kind of space."""

from __future__ import annotations

import unicodedata


def tidy(text: str) -> str:
    """The one spelling of a name: Unicode NFC, single spaces, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())
