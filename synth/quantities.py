"""Numbers with units and dates, as texts write them, in one normal form.

quantity("28,748 sq km")              -> Quantity("28748", "sq km")
quantity("$1.29 trillion (2023 est.)")-> Quantity("1290000000000", "$")
quantity("about a dozen")             -> None
date("14 July 1789"), date("July 14, 1789"), date("1789-07-14")  -> "1789-07-14"
date("in 1789")                       -> None: a year alone is no date; `year` reads "1789"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_MAGNITUDES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_QUANTITY = re.compile(
    r"(?P<sign>[-+\N{MINUS SIGN}]?)\s?(?P<money>[$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}]?)(?P<sign2>[-\N{MINUS SIGN}]?)"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})(?:\.(?P<part>[0-9]{1,12}))?"
    r"(?:\s?(?P<magnitude>hundred|thousand|million|billion|trillion)\b)?\s?(?P<unit>"
    r"(?:[^\W\d_]|[%\N{DEGREE SIGN}])(?:[^\d;:()\[\]]|\(s\)|(?<=[A-Z])\d(?!\w)){0,39}(?:(?<=/)\d[\d,]*\s[^\d;:()\[\]]{1,39})?)?"
)
_NOTE = re.compile(r"\s*[(\[][^()\[\]]{0,200}[)\]]\s*\.?$")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH = "|".join([*MONTHS, *(m[:3] for m in MONTHS), "sept"])
_DATES = (
    re.compile(
        rf"(?P<d>[0-9]{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m>{_MONTH})\.?,?\s+(?P<y>[0-9]{{3,4}})\b", re.IGNORECASE
    ),
    re.compile(rf"\b(?P<m>{_MONTH})\.?\s+(?P<d>[0-9]{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>[0-9]{{3,4}})\b", re.IGNORECASE),
    re.compile(r"\b(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})(?!\d)"),
)
_YEAR = re.compile(r"\b(1[0-9]{3}|20[0-9]{2})\b")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class Quantity:
    """number: plain decimal digits, no exponent, no separators; unit: as written, without the note in brackets ("" for
    none)."""

    number: str
    unit: str


def without_note(text: str) -> str:
    """The text without remarks in brackets at its end: "82.6 years (2024 est.)" -> "82.6 years"."""
    if ")" not in text and "]" not in text:
        return text.strip()
    for _ in range(4):  # bounded, so that hostile text cannot cause a long loop
        shorter = _NOTE.sub("", text[-400:])
        if len(shorter) == len(text[-400:]):
            break
        text = text[:-400] + shorter
    return text.strip()


def quantity(text: str) -> Quantity | None:
    """The whole text parsed as a number with its unit; None if the text is anything else."""
    match = _QUANTITY.fullmatch(without_note(text)) if len(text) <= 400 else None
    if match is None or (match["sign"] and match["sign2"]):
        return None
    value = Decimal(match["whole"].replace(",", "") + ("." + match["part"] if match["part"] else ""))
    value = value.scaleb(_MAGNITUDES.get(match["magnitude"] or "", 0))
    minus = any(match[s] in ("-", "\N{MINUS SIGN}") for s in ("sign", "sign2") if match[s])
    digits = f"{value:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    unit = " ".join(filter(None, (match["money"], (match["unit"] or "").strip().rstrip("."))))
    return Quantity("-" + digits if minus and digits.strip("0.") else digits, unit)


def find_date(text: str) -> tuple[str, int, int] | None:
    """(ISO date, start, end) of the first date in the text; None for none. Impossible days are not dates."""
    matches = [(m.start(), m) for pattern in _DATES for m in pattern.finditer(text[:2000])]
    for _, m in sorted(matches, key=lambda f: f[0]):
        month = (
            int(m["m"])
            if m["m"].isdigit()
            else 1 + next(i for i, name in enumerate(MONTHS) if name.startswith(m["m"].lower()[:3]))
        )
        if 1 <= month <= 12 and 1 <= int(m["d"]) <= _DAYS[month - 1]:
            return f"{int(m['y']):04}-{month:02}-{int(m['d']):02}", m.start(), m.end()
    return None


def date(text: str) -> str | None:
    """The whole text parsed as an ISO date, up to spaces and a note in brackets."""
    text = without_note(text).strip(" .")
    match = find_date(text)
    return match[0] if match and (match[1], match[2]) == (0, len(text)) else None


def year(text: str) -> str | None:
    """The year (1000 to 2099) that a text names, if it names exactly one."""
    years = set(_YEAR.findall(text[:2000]))
    return years.pop() if len(years) == 1 else None
