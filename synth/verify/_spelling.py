"""Normalises the wrapping and the characters of an answer before a verifier's own parser sees it.

A verifier's file names its `FORM`; a file without one gets the answer as it was written. In every form, if the whole
answer is wrapped, the wrapping is removed: a code fence, backticks, ** **, double quotes, $ $, \\( \\), \\[ \\], and
\\boxed{}, \\text{} and their like; a line ends with "\\n". Nothing is ever extracted from a longer text: an answer with
words around it stays unchanged.

code     nothing else: signs inside a program are its own
data     a query or JSON: as code; in addition ** ** around all of it, and a full stop at its end go
literal  in addition a full stop behind letters, digits and spaces, and behind numbers in a list where the reference is
         one ("1-3; 5-8."); nothing at all where the question or the reference
         itself holds a sign of markup
text     all kinds of space are one space, all dashes and minus signs "-", full-width digits and punctuation ASCII; one
         full stop at the end goes. Letters keep their alphabet, accents and case
number   as text; in addition signs of operations (× ÷ and their like) are * and /, fractions (1/2 in one sign or in LaTeX)
         are written with "/", raised digits with ^, LaTeX's commands as plain text
math     as number; a fraction is put in parentheses, square brackets are round ones
latex    as text; signs of operations and raised digits are LaTeX's own

Digits of other scripts, letters that only look alike, and signs that cannot be seen are not replaced. All of it takes
linear time, and an answer of plain ASCII without any such sign is returned as it is.
"""

from __future__ import annotations

import re
from typing import Literal

Form = Literal["code", "data", "literal", "text", "number", "math", "latex"]
MAX_CHARS = 10_000  # no verifier reads more
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("**", "**"), ("`", "`"), ('"', '"'), ("“", "”"), ("\\(", "\\)"), ("\\[", "\\]"))
_FENCE = re.compile(r"(```|~~~)[A-Za-z0-9_+#-]{0,20}[ \t]*\n(.*?)\n?[ \t]*\1", re.DOTALL)
_COMMAND = re.compile(r"\\(?:boxed|fbox|text|textbf|textrm|textit|mathrm|mathbf|mathit|operatorname)\s*\{")
_SPACES = dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " ")
_DASHES = dict.fromkeys((*range(0x2010, 0x2014), 0x2212, 0xFE63), "-")
_WIDE = {c: chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F) if not chr(c - 0xFEE0).isalpha()} | {0x3002: "."}
_TEXT = _SPACES | _DASHES | _WIDE
_OPERATIONS = dict.fromkeys(map(ord, "×⋅·∙∗✕✖"), "*") | dict.fromkeys(map(ord, "÷∕"), "/")
_HALVES = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5"}
_HALVES |= {"⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅐": "1/7", "⅑": "1/9", "⅒": "1/10"}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_POWER = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_FRACTION = re.compile(
    r"(?P<before>[0-9]?)\\[dt]?frac\s*(?:\{(?P<a>[^{}]*)\}\s*\{(?P<b>[^{}]*)\}|(?P<c>[0-9])(?P<d>[0-9]))"
)
_ROOT = re.compile(r"\\sqrt\s*\{([^{}]*)\}")
_LATEX = (  # what a command is in plain text; the longer of two that begin alike stands first
    (re.compile(r"\\(?:left|right|displaystyle|limits)(?![A-Za-z])|\\[!]"), ""),
    (re.compile(r"\\[,;: ]|~|\\q?quad(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\(?:to|rightarrow|longrightarrow)(?![A-Za-z])"), "->"),
    (re.compile(r"\\(pi|sqrt|sin|cos|tan|exp|log)(?![A-Za-z])"), r"\1"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([{}%$#&_])"), r"\1"),
    (re.compile(r"([\^_])\{([0-9]+)\}"), r"\1\2"),
    (re.compile(r"\^\{([^{}]*)\}"), r"^(\1)"),
)
_MARKS = re.compile(r"[`*$\"“”\\]")
_OPENING = tuple('`*$"\\~')  # what a wrapper begins with
_SIGNS = re.compile(r"[\\{\[]")
_BARE = re.compile(r"[\w ]+\.")
_LISTED = re.compile(r"[A-Za-z ;,-]*[0-9][A-Za-z0-9 ;,-]*")


def plain(answer: str, form: Form, question: str = "", reference: str = "") -> str:
    """The answer in the signs that a verifier of the form reads, stripped. `question` and `reference` are the problem's;
    the reference itself is returned as it is. Longer answers than any verifier reads are returned as they are."""
    text = answer.strip()
    if len(text) > MAX_CHARS:
        return answer
    if text == reference:
        return text
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if form == "literal":
        if _MARKS.search(question) or _MARKS.search(reference):
            return text
        text = _unwrapped(text)
        if reference.endswith(".") or not text.endswith("."):
            return text
        without = _unwrapped(text[:-1])
        listed = _LISTED.fullmatch(reference) and _LISTED.fullmatch(without)
        return without if without != text[:-1] or listed or _BARE.fullmatch(text) else text
    if form == "code":
        return _program(text)
    if form == "data":  # a full stop stands behind the fence, or in it
        text = _program(text.removesuffix("."))
        text = text[2:-2].strip() if len(text) > 4 and text[:2] == text[-2:] == "**" else text
        return text.removesuffix(".")
    if not text.isascii():
        text = text.translate(_TEXT).strip()
    elif text[:1] not in _OPENING and text[-1:] != "." and (form == "text" or not _SIGNS.search(text)):
        return text
    text = _unwrapped(text)
    text = text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text
    text = _unwrapped(text)
    return text if form == "text" else _written(text, form)


def _program(text: str) -> str:
    if match := _FENCE.fullmatch(text):
        return match[2] if match[1] not in match[2] else text
    return _backticks(text)


def _backticks(text: str) -> str:
    inside = text[1:-1]
    return inside if text[:1] == text[-1:] == "`" and inside.strip("`") == inside and "`" not in inside else text


def _unwrapped(text: str) -> str:
    """The text without what wraps all of it, up to six layers."""
    for _ in range(6):
        before = text
        if match := _FENCE.fullmatch(text):
            text = match[2].strip() if match[1] not in match[2] else text
        for left, right in _WRAPPERS:
            inside = text[len(left) : -len(right)]
            if text.startswith(left) and text.endswith(right) and inside and left not in inside and right not in inside:
                text = inside.strip()
                break
        if (match := _COMMAND.match(text)) and text.endswith("}") and _closed(text[match.end() : -1]):
            text = text[match.end() : -1].strip()
        if text == before:
            break
    return text


def _closed(inside: str) -> bool:
    """Whether every brace within is closed within."""
    depth = 0
    for c in inside:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return depth == 0


def _written(text: str, form: Form) -> str:
    """The text with operations, fractions and powers in plain signs, or in those of LaTeX."""
    if form == "latex":
        text = text.translate({k: "\\cdot " if v == "*" else v for k, v in _OPERATIONS.items()})
        text = _POWER.sub(lambda m: f"^{{{m[0].translate(_RAISED)}}}", text)
        return text.replace("π", "\\pi ").replace("\\!", "").replace("\\,", "")
    if not text.isascii():
        text = text.translate(_OPERATIONS)
        text = re.sub(
            "([0-9]?)([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒])", lambda m: _share(m[1], *_HALVES[m[2]].split("/"), form=form), text
        )
        text = _POWER.sub(lambda m: _power(m[0].translate(_RAISED)), text).replace("\N{FRACTION SLASH}", "/")
        text = text.replace("π", "pi").replace("√(", "sqrt(")
        text = re.sub("√([0-9]+|[a-z])", r"sqrt(\1)", text)
    if "\\" in text or "{" in text:
        for _ in range(8):  # fractions within fractions, from within
            shorter = _FRACTION.sub(
                lambda m: _share(
                    m["before"], m["a"] if m["c"] is None else m["c"], m["b"] if m["c"] is None else m["d"], form
                ),
                text,
            )
            shorter = _ROOT.sub(r"sqrt(\1)", shorter)
            if shorter == text:
                break
            text = shorter
        for pattern, sign in _LATEX:
            text = pattern.sub(sign, text)
        text = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r"\1", text)
    return text.translate({ord("["): "(", ord("]"): ")"}) if form == "math" else text


def _power(digits: str) -> str:
    return f"^{digits}" if digits.isdigit() else f"^({digits})"


def _share(before: str, above: str, below: str, form: Form) -> str:
    """A fraction in plain text: behind a digit it is the rest of a mixed number where one number is asked for."""
    if form == "number":
        return f"{before}{' ' * bool(before)}{above.strip()}/{below.strip()}"
    return f"{before}(({above})/({below}))"
