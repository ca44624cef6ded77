"""A table of right and wrong answers in the spellings that people and models use: what is right must be paid, what is only
near must not.

Made from the families' own problems by a grammar, one list of spellings and one of near misses for each verifier, and by
hand for what the families do not ask (`HAND`). Nothing is drawn at random: the table is the same in every process.
tests/synth/verify/test_spellings.py asserts that no verdict of it is false, benchmarks/graders.py counts them.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib import import_module
from typing import NamedTuple

import synth.families
from synth.types import Problem

ITEMS = 2  # problems of a level
FEW = {"sql": 2, "python_function": 1, "symbolic": 1, "latex": 1}  # where each answer starts a process
Forms = dict[str, str | None]  # name of a spelling -> the answer; None where this reference has no such spelling


class Case(NamedTuple):
    """One answer: `right` says what its verdict should be, `how` names the spelling."""

    problem: Problem
    answer: str
    right: bool
    how: str

    def __str__(self) -> str:
        return f"{self.problem.verifier}, {self.how}: {self.answer!r} for {self.problem.answer!r}"


def wrapped(gold: str) -> Forms:
    """What may stand around any answer but a program."""
    return {
        "as it is": gold,
        "spaces": f" \t{gold}\n",
        "CRLF at the end": f"{gold}\r\n",
        "no-break spaces": f"\u00a0{gold}\u202f",
        "full stop": f"{gold}.",
        "ideographic full stop": f"{gold}\u3002",
        "bold": f"**{gold}**",
        "bold, full stop": f"**{gold}**.",
        "bold with its full stop": f"**{gold}.**",
        "backticks": f"`{gold}`",
        "fence": f"```\n{gold}\n```",
        "fence with a word": f"```text\n{gold}\n```",
        "fence with CRLF": f"```\r\n{gold}\r\n```",
        "quotes": f'"{gold}"',
        "curly quotes": f"\u201c{gold}\u201d",
        "dollars": f"${gold}$",
        "two dollars": f"$${gold}$$",
        "round LaTeX": f"\\({gold}\\)",
        "square LaTeX": f"\\[{gold}\\]",
        "text": f"\\text{{{gold}}}",
        "boxed": f"\\boxed{{{gold}}}",
        "boxed in dollars": f"$\\boxed{{{gold}}}$",
        "boxed text": f"\\boxed{{\\text{{{gold}}}}}",
        "boxed, full stop": f"$\\boxed{{{gold}}}$.",
    }


def beside(gold: str) -> Forms:
    """What holds the reference and is not it."""
    return {
        "in a sentence": f"it is {gold} I think",
        "two guesses": f"{gold} or not {gold}",
        "bold and more": f"**{gold}** or **0**",
        "boxed and more": f"\\boxed{{{gold}}} or \\boxed{{0}}",
        "invisible": f"{gold[:1]}\u200b{gold[1:]}",
        "in tags": f"<answer>{gold}</answer>",
        "negated": f"not {gold}",
    }


def number(p: Problem) -> tuple[Forms, Forms]:
    gold = Fraction(p.answer)
    sign, above, below = "-" if gold < 0 else "", abs(gold.numerator), gold.denominator
    whole, integer = below == 1, p.args.get("kind") == "integer"
    text = p.answer.removeprefix("-")
    grouped = f"{above:,}"
    counted = re.search(r"\bhow (?:many|much) (\w+)", p.question, re.IGNORECASE)
    one = re.fullmatch(r"Solve(?: for x)?:? .*", p.question) and (
        "x" if "for x" in p.question or "x" in p.question else None
    )
    right: Forms = wrapped(p.answer) | {
        "minus sign": f"\u2212{text}" if sign else None,
        "en dash": f"\u2013{text}" if sign else None,
        "full-width minus": f"\uff0d{text}" if sign else None,
        "plus": f"+{text}" if not sign else None,
        "full-width digits": sign + "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in text),
        "commas": sign + grouped if whole and above > 999 else None,
        "LaTeX's commas": sign + grouped.replace(",", "{,}") if whole and above > 999 else None,
        "thin spaces": sign + grouped.replace(",", "\u2009") if whole and above > 999 else None,
        "narrow no-break spaces": sign + grouped.replace(",", "\u202f") if whole and above > 999 else None,
        "dollar": f"{sign}${text}" if whole and not counted else None,
        "decimal": f"{p.answer}.0" if whole and not integer else None,
        "over one": f"{p.answer}/1" if whole and not integer else None,
        "LaTeX's fraction": f"{sign}\\frac{{{above}}}{{{below}}}" if not whole else None,
        "display fraction": f"${sign}\\dfrac{{{above}}}{{{below}}}$" if not whole else None,
        "sign within the fraction": f"\\frac{{{sign}{above}}}{{{below}}}" if not whole else None,
        "fraction slash": f"{sign}{above}\u2044{below}" if not whole else None,
        "not reduced": f"{sign}{2 * above}/{2 * below}" if not whole else None,
        "mixed": f"{sign}{above // below} {above % below}/{below}" if above > below > 1 else None,
        "mixed in LaTeX": f"{sign}{above // below}\\frac{{{above % below}}}{{{below}}}" if above > below > 1 else None,
        "a half in one sign": f"{sign}{above // 2 or ''}\u00bd" if below == 2 else None,
        "percent": f"{sign}{above * 100 // below}%"
        if not integer and 100 % below == 0 and "percent" not in p.question
        else None,
        "its unit": f"{p.answer} {counted[1]}" if counted else None,
        "its unit, full stop": f"{p.answer} {counted[1]}." if counted else None,
        "variable": f"{one} = {p.answer}" if one else None,
        "variable in dollars": f"${one}={p.answer}$" if one else None,
    }
    wrong: Forms = beside(p.answer) | {
        "other sign": f"-{text}" if not sign and above else text if above else None,
        "other sign, minus sign": f"\u2212{text}" if not sign and above else None,
        "another digit": f"{p.answer}0" if above and "." not in p.answer else None,
        "question": f"{p.answer}?",
        "ellipsis": f"{p.answer}...",
        "one more": str(gold + 1),
        "upside down": f"{sign}{below}/{above}" if above > 1 or below > 1 else None,
        "shifted": f"{sign}{above // 10 or 7}.{above % 10}" if whole and above > 9 else None,
        "comma in a wrong place": f"{sign}{text[:-2]},{text[-2:]}" if whole and above > 999 else None,
        "decimal comma": f"{sign}{above},0" if whole else None,
        "percent of it": f"{p.answer}%" if whole and above else None,
        "raised": f"{text}\u00b2" if above > 1 else None,
        "another unit": f"{p.answer} furlongs",
        "another variable": f"q = {p.answer}",
        "Arabic-Indic digits": text.translate({48 + i: 0x660 + i for i in range(10)}),
        "rounded": f"{float(gold):.3f}" if 1000 % below else None,
        "mixed read as a product": f"{sign}{above // below}*{above % below}/{below}" if above > below > 1 else None,
        "euros": f"\u20ac{text}",
        "not written as an integer": f"{p.answer}.0" if integer else None,
        "range": f"{p.answer}-{above + 1}",
        "about": f"~{p.answer}",
    }
    return right, wrong


def exact(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    right: Forms = wrapped(gold) | {
        "capitals": gold.upper(),
        "article": None if gold.startswith("the ") else f"the {gold}",
        "full-width": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in gold),
    }
    wrong: Forms = beside(gold) | {
        "shorter": gold[:-1] if len(gold) > 1 else None,
        "doubled": gold + gold,
        "minus": f"-{gold}" if gold[0].isdigit() else None,
        "en dash": f"\u2013{gold}" if gold[0].isdigit() else None,
        "sharp": f"{gold}#" if gold.isalpha() else None,
        "plus": f"{gold}+" if gold.isalpha() else None,
        "star": f"{gold}*" if gold.isalpha() else None,
        "other accent": f"{gold[0]}\u0301{gold[1:]}" if gold.isalpha() else None,
        "look-alike": gold.replace("o", "\u043e").replace("e", "\u0435") if "o" in gold or "e" in gold else None,
        "raised digit": gold[:-1] + "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[int(gold[-1])]
        if len(gold) > 1 and gold.isdigit()
        else None,
    }
    if match := re.fullmatch(r"(\d\d):(\d\d)", gold):
        hour = int(match[1])
        half = f"{hour % 12 or 12}:{match[2]}"
        right |= {"one digit": f"{hour}:{match[2]}", "am or pm": f"{half} {'am' if hour < 12 else 'pm'}"}
        right |= {"A.M. or P.M.": f"{half} {'A.M.' if hour < 12 else 'P.M.'}"}
        wrong |= {
            "the other half": f"{half} {'pm' if hour < 12 else 'am'}",
            "minutes first": f"{match[2]}:{match[1]}" if match[1] != match[2] else None,
        }
    if match := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", gold):
        month = "January February March April May June July August September October November December".split()
        name, day = month[int(match[2]) - 1], int(match[3])
        right |= {
            "in words": f"{day} {name} {match[1]}",
            "American": f"{name} {day}, {match[1]}",
            "short": f"{day} {name[:3]} {match[1]}",
        }
        right |= {
            "ordinal": f"{name} {day}{'th' if 4 <= day <= 20 else ''}, {match[1]}",
            "hyphens": gold.replace("-", "\u2011"),
        }
        wrong |= {
            "next year": f"{day} {name} {int(match[1]) + 1}",
            "month alone": f"{name} {match[1]}",
            "another day": f"{day % 28 + 1} {name} {match[1]}",
        }
    if re.fullmatch(r"-?\d+( -?\d+)+", gold):
        items = gold.split()
        right |= {"commas": ", ".join(items), "commas alone": ",".join(items), "brackets": f"[{', '.join(items)}]"}
        wrong |= {
            "turned": " ".join(reversed(items)) if items != items[::-1] else None,
            "joined": "".join(items),
            "one less": " ".join(items[:-1]),
        }
    if re.fullmatch(r"[1-9]\d{3,}", gold):
        right |= {"groups": f"{int(gold):,}", "thin groups": f"{int(gold):,}".replace(",", "\u2009")}
        wrong |= {"wrong groups": f"{gold[:-2]},{gold[-2:]}", "decimal": f"{gold}.5"}
    return right, wrong


def items(p: Problem) -> tuple[Forms, Forms]:
    """Lists in an order, and in any."""
    parts = p.answer.split(", " if ", " in p.answer else None)
    many, any_order = len(parts) > 1, p.verifier == "item_set"
    digits = all(re.fullmatch("-?[0-9]+", x) for x in parts)
    names = len(set(parts)) == len(parts)
    solved = p.family == "quadratic_equations"
    right: Forms = wrapped(p.answer) | {
        "commas": ", ".join(parts),
        "commas alone": ",".join(parts),
        "brackets": f"[{', '.join(parts)}]",
        "brackets in dollars": f"$[{', '.join(parts)}]$",
        "parentheses": f"({', '.join(parts)})",
        "semicolons": "; ".join(parts),
        "and": f"{', '.join(parts[:-1])} and {parts[-1]}" if many else None,
        "comma and": f"{', '.join(parts[:-1])}, and {parts[-1]}" if many else None,
        "lines": "\n".join(parts),
        "lines with CRLF": "\r\n".join(parts),
        "numbered lines": "\n".join(f"{i}. {x}" for i, x in enumerate(parts, 1)) if many else None,
        "bulleted lines": "\n".join(f"* {x}" for x in parts) if many else None,
        "quoted items": json.dumps(parts),
        "no-break spaces": "\u00a0".join(parts),
        "minus signs": p.answer.replace("-", "\u2212") if "-" in p.answer else None,
        "full-width commas": "\uff0c".join(parts),
        "JSON in a fence": f"```json\n[{', '.join(parts)}]\n```" if digits else None,
        "product": " \u00d7 ".join(parts) if "product" in p.question else None,
        "product in LaTeX": " \\times ".join(parts) if "product" in p.question else None,
        "product by dots": "\u00b7".join(parts) if "product" in p.question else None,
        "braces": f"{{{', '.join(parts)}}}" if any_order else None,
        "LaTeX's braces": f"$\\{{{', '.join(parts)}\\}}$" if any_order else None,
        "turned": ", ".join(reversed(parts)) if any_order else None,
        "named": ", ".join(f"x = {x}" for x in parts) if solved else None,
        "named by index": ", ".join(f"x_{i} = {x}" for i, x in enumerate(parts, 1)) if solved else None,
        "or": " or ".join(f"x = {x}" for x in parts) if solved else None,
        "fractions in LaTeX": ", ".join(re.sub(r"(\d+)/(\d+)", r"\\frac{\1}{\2}", x) for x in parts)
        if solved
        else None,
    }
    other = str(int(parts[0]) + 1) if digits else "zz"
    wrong: Forms = beside(p.answer) | {
        "one more": f"{p.answer} {other}",
        "one less": " ".join(parts[:-1]) if many else None,
        "one changed": " ".join([other, *parts[1:]]),
        "turned": " ".join(reversed(parts)) if not any_order and parts != parts[::-1] else None,
        "joined": "".join(parts) if many else None,
        "an empty place": f"{parts[0]},,{' '.join(parts[1:])}",
        "one twice": f"{p.answer} {parts[-1]}",
        "or a guess": f"{p.answer} or {other}",
        "numbers out of order": "\n".join(f"{i}. {x}" for i, x in zip(range(len(parts), 0, -1), parts, strict=True))
        if many and names
        else None,
        "a product where none is asked": "*".join(parts) if many and "product" not in p.question else None,
        "other sign": " ".join(x[1:] if x[0] == "-" else f"-{x}" for x in parts)
        if digits
        and any(x.strip("-0") for x in parts)
        and not (any_order and sorted(map(int, parts)) == sorted(-int(x) for x in parts))
        else None,
    }
    return right, wrong


def grid(p: Problem) -> tuple[Forms, Forms]:
    rows = p.answer.split("/")
    flat = "".join(rows)
    other = "1" if flat[0] != "1" else "0"
    right: Forms = wrapped(p.answer) | {
        "lines": "\n".join(rows),
        "lines with CRLF": "\r\n".join(rows),
        "old line ends": "\r".join(rows),
        "spaces": "\n".join(" ".join(r) for r in rows),
        "CRLF and spaces": "\r\n".join(" ".join(r) for r in rows),
        "bars": "\n".join(f"|{'|'.join(r)}|" for r in rows),
        "JSON": json.dumps([list(map(int, r)) for r in rows]),
        "JSON of texts": json.dumps(rows),
        "in a fence": "```\n" + "\n".join(rows) + "\n```",
        "no-break spaces": "\u00a0".join(flat),
        "full-width digits": "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in p.answer),
        "commas and semicolons": "; ".join(", ".join(r) for r in rows),
    }
    wrong: Forms = beside(p.answer) | {
        "one cell": other + p.answer[1:],
        "a cell too few": p.answer[:-1],
        "a cell too many": f"{p.answer}{flat[-1]}",
        "an open cell": f"{p.answer[:-1]}.",
        "turned": flat[::-1] if flat != flat[::-1] else None,
        "columns": "/".join("".join(c) for c in zip(*rows, strict=True))
        if len(rows) > 1 and ["".join(c) for c in zip(*rows, strict=True)] != rows
        else None,
        "a row left out": "/".join(rows[1:]) if len(rows) > 1 else None,
    }
    return right, wrong


def assignment(p: Problem) -> tuple[Forms, Forms]:
    pairs = dict(re.findall(r"(\w+)(?:: | = )(\w+)", p.answer))
    write = lambda form, by: by.join(form.format(*x) for x in pairs.items())  # noqa: E731
    people = "knight" in p.question.lower()
    flip = {"knight": "knave", "knave": "knight", "true": "false", "false": "true"}
    name, value = next(iter(pairs.items()))
    changed = {**pairs, name: flip[value]}
    right: Forms = wrapped(p.answer) | {
        "colons": write("{}: {}", ", "),
        "equal signs": write("{}={}", ", "),
        "lines": write("{}: {}", "\n"),
        "lines with CRLF": write("{}: {}", "\r\n"),
        "bullets": write("- {}: {}", "\n"),
        "semicolons": write("{} = {}", "; "),
        "JSON": json.dumps(pairs),
        "braces": "{" + write("{}: {}", ", ") + "}",
        "arrows": write("{} \u2192 {}", ", "),
        "in words": write("{} is a {}" if people else "{} is {}", ", "),
        "in words with and": write("{} is a {}" if people else "{} is {}", " and "),
        "capitals": p.answer.upper(),
        "turned": ", ".join(f"{k}: {v}" for k, v in reversed(pairs.items())),
        "letters": None if people else ", ".join(f"{k} = {v[0].upper()}" for k, v in pairs.items()),
    }
    wrong: Forms = beside(p.answer) | {
        "one changed": ", ".join(f"{k}: {v}" for k, v in changed.items()),
        "one changed, JSON": json.dumps(changed),
        "one missing": ", ".join(f"{k}: {v}" for k, v in list(pairs.items())[1:]) or None,
        "one more": f"{p.answer}, zz: {value}",
        "one twice": f"{p.answer}, {name}: {value}",
        "not": p.answer.replace(value, f"not {value}", 1),
        "both": p.answer.replace(value, f"{value} or {flip[value]}", 1),
        "only values": " ".join(pairs.values()),
        "is not": ", ".join(f"{k} is not {v}" for k, v in pairs.items()),
    }
    return right, wrong


def choice(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    others = [x for x in "ABCDEF" if x != gold]
    right: Forms = wrapped(gold) | {
        "small": gold.lower(),
        "parentheses": f"({gold})",
        "bracket": f"{gold})",
        "square brackets": f"[{gold}]",
        "colon": f"{gold}:",
        "option": f"Option {gold}",
        "bold parentheses": f"**({gold})**",
        "text in LaTeX": f"\\text{{({gold})}}",
    }
    wrong: Forms = (
        beside(gold)
        | {f"the other {x}": x for x in others}
        | {
            "two": f"{gold}, {others[0]}",
            "and": f"{gold} and {others[0]}",
            "none": "G",
            "sharp": f"{gold}#",
            "minus": f"{gold}-",
            "number": str("ABCDEF".index(gold) + 1),
            "look-alike": gold.translate({65: 0x410, 66: 0x412, 67: 0x421, 68: 0x44E}),
        }
    )
    return right, wrong


def criteria_verdict(p: Problem) -> tuple[Forms, Forms]:
    criteria, _, gold = p.answer.rpartition(": ")
    other = "A" if gold != "A" else "B"
    right: Forms = wrapped(p.answer) | {
        "verdict alone": gold,
        "other criteria": f"quite 1: {gold}",
        "no space": f"{criteria}:{gold}",
        "too much weight": f"{criteria}, quite 0.9: {gold}",
    }
    wrong: Forms = beside(p.answer) | {
        "another verdict": f"{criteria}: {other}",
        "another verdict alone": other,
        "two verdicts": f"{criteria}: {gold} or {other}",
        "criteria alone": criteria,
        "small": f"{criteria}: {gold.lower()}",
    }
    return right, wrong


def moves(p: Problem) -> tuple[Forms, Forms]:
    steps = list(p.answer)
    words = {"U": "up", "D": "down", "L": "left", "R": "right"}
    arrows = {"U": "\u2191", "D": "\u2193", "L": "\u2190", "R": "\u2192"}
    right: Forms = wrapped(p.answer) | {
        "spaces": " ".join(steps),
        "commas": ", ".join(steps),
        "small": p.answer.lower(),
        "words": ", ".join(words[s] for s in steps),
        "arrows": "".join(arrows[s] for s in steps),
        "hyphens": "-".join(steps),
        "steps": " -> ".join(steps),
        "JSON": json.dumps(steps),
        "lines": "\r\n".join(steps),
        "no-break spaces": "\u00a0".join(steps),
    }
    wrong: Forms = beside(p.answer) | {
        "one step less": p.answer[:-1],
        "one step more": p.answer + p.answer[-1],
        "another letter": f"{p.answer}X",
        "compass": ", ".join({"U": "N", "D": "S", "L": "W", "R": "E"}[s] for s in steps),
        "the way back": "".join({"U": "D", "D": "U", "L": "R", "R": "L"}[s] for s in reversed(steps)),
        "a detour": p.answer + "UD",
        "half": p.answer[: len(steps) // 2] or None,
    }
    return right, wrong


def pipeline(p: Problem) -> tuple[Forms, Forms]:
    names = p.answer.split()
    right: Forms = wrapped(p.answer) | {
        "commas": ", ".join(names),
        "arrows": " -> ".join(names),
        "arrows in one sign": " \u2192 ".join(names),
        "bars": "|".join(names),
        "lines": "\n".join(names),
    }
    wrong: Forms = beside(p.answer) | {
        "without the last tool": " ".join(names[:-1]),
        "a tool that there is not": " ".join([*names, "rhyme"]),
        "no spaces": "".join(names),
    }
    return right, wrong


def rewriting(p: Problem) -> tuple[Forms, Forms]:
    words = p.answer.split(" = ")
    right: Forms = wrapped(p.answer) | {
        "no spaces": "=".join(words),
        "letters apart": " = ".join(" ".join(w) for w in words),
        "lines": "\n= ".join(words),
        "arrows": " -> ".join(words),
        "arrows in one sign": " \u2192 ".join(words),
        "there and back": " = ".join([words[0], words[1], *words]),
    }
    wrong: Forms = beside(p.answer) | {
        "without the first word": " = ".join(words[1:]),
        "without the last word": " = ".join(words[:-1]),
        "the way back": " = ".join(reversed(words)),
        "a gap": f"{words[0]} = ? = {words[-1]}",
        "a gap beside a proof": f"{p.answer} = ?",
        "no step": " = ".join([words[0], *words]),
        "a step left out": f"{words[0]} = {words[-1]}",
        "another letter": p.answer + "d",
        "commas": ", ".join(words),
    }
    return right, wrong


def nodes(p: Problem) -> tuple[Forms, Forms]:
    """Paths and orders."""
    parts = p.answer.split()
    right: Forms = wrapped(p.answer) | {
        "commas": ", ".join(parts),
        "commas alone": ",".join(parts),
        "hyphens": "-".join(parts),
        "dashes": " \u2013 ".join(parts),
        "steps": " -> ".join(parts),
        "arrows": "\u2192".join(parts),
        "arrows with spaces": " \u2192 ".join(parts),
        "LaTeX's arrows": " \\to ".join(parts),
        "double arrows": " => ".join(parts),
        "brackets": f"[{', '.join(parts)}]",
        "JSON": json.dumps(parts),
        "lines": "\r\n".join(parts),
    }
    wrong: Forms = beside(p.answer) | {
        "one less": " ".join(parts[:-1]),
        "one more": f"{p.answer} zz",
        "last twice": f"{p.answer} {parts[-1]}",
        "turned": " ".join(reversed(parts)),
        "small": p.answer.lower(),
        "joined": "".join(parts),
        "first left out": " ".join(parts[1:]),
    }
    return right, wrong


def layout(p: Problem) -> tuple[Forms, Forms]:
    places = [(n, x, y) for n, x, y in re.findall(r"([A-Z]) (\d+) (\d+)", p.answer)]
    write = lambda form, by: by.join(form.format(*x) for x in places)  # noqa: E731
    right: Forms = wrapped(p.answer) | {
        "parentheses": write("{} ({}, {})", ", "),
        "colons": write("{}: ({}, {})", ", "),
        "colons without": write("{}: {} {}", "; "),
        "equal signs": write("{} = ({}, {})", ", "),
        "at": write("{} at ({}, {})", "\n"),
        "lines with CRLF": write("{} {} {}", "\r\n"),
        "brackets": write("{}: [{}, {}]", ", "),
        "JSON": json.dumps({n: [int(x), int(y)] for n, x, y in places}),
        "turned": ", ".join(f"{n} {x} {y}" for n, x, y in reversed(places)),
        "full-width commas": write("{} {} {}", "\uff0c"),
    }
    wrong: Forms = beside(p.answer) | {
        "one missing": ", ".join(" ".join(x) for x in places[1:]),
        "all at one place": ", ".join(f"{n} 0 0" for n, _, _ in places),
        "outside": ", ".join(f"{n} {int(x) + 100} {y}" for n, x, y in places),
        "one twice": f"{p.answer}, {' '.join(places[0])}",
        "another box": f"{p.answer}, Z 0 0",
        "negative": p.answer.replace(f"{places[0][0]} ", f"{places[0][0]} -1", 1),
        "only numbers": " ".join(f"{x} {y}" for _, x, y in places),
    }
    return right, wrong


def expression(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    right: Forms = wrapped(gold) | {
        "times sign": gold.replace("*", "\u00d7") if "*" in gold else None,
        "dot": gold.replace("*", "\u00b7") if "*" in gold else None,
        "division sign": gold.replace("/", "\u00f7") if "/" in gold else None,
        "minus sign": gold.replace("-", "\u2212") if "-" in gold else None,
        "LaTeX": gold.replace("*", "\\times").replace("/", "\\div"),
        "LaTeX's parentheses": gold.replace("(", "\\left(").replace(")", "\\right)") if "(" in gold else None,
        "square brackets": gold.replace("(", "[").replace(")", "]") if "(" in gold else None,
        "no spaces": gold.replace(" ", ""),
        "one more pair": f"({gold})",
        "full-width digits": "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in gold),
        "thin spaces": gold.replace(" ", "\u2009"),
    }
    n = p.args["numbers"]
    wrong: Forms = beside(gold) | {
        "the target": str(p.args["target"]),
        "with the target": f"{gold} = {p.args['target'] + 1}",
        "one more": f"{gold} + 0",
        "one less": " + ".join(map(str, n[:-1])) or None,
        "negated": f"-({gold})",
        "squared": f"({gold})\u00b2",
        "one number twice": f"{gold} * {n[0]} / {n[0]}",
        "digits joined": "".join(map(str, n)),
    }
    return right, wrong


def formula(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    raised = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
    letter = next((c for c in gold if c.isalpha()), None)
    power = re.search(r"\^(\d+)", gold)
    right: Forms = wrapped(gold) | {
        "raised digits": re.sub(r"\^(\d+)", lambda m: m[1].translate(raised), gold) if power else None,
        "LaTeX's powers": re.sub(r"\^(\d+)", r"^{\1}", gold) if power else None,
        "stars": gold.replace("^", "**") if power else None,
        "minus signs": gold.replace("-", "\u2212") if "-" in gold else None,
        "dots": re.sub(r"(\d)([a-z])", "\\1\u00b7\\2", gold) if re.search(r"\d[a-z]", gold) else None,
        "times signs": re.sub(r"(\d)([a-z])", "\\1 \u00d7 \\2", gold) if re.search(r"\d[a-z]", gold) else None,
        "LaTeX's products": re.sub(r"(\d)([a-z])", r"\1 \\cdot \2", gold) if re.search(r"\d[a-z]", gold) else None,
        "no spaces": gold.replace(" ", ""),
        "thin spaces": gold.replace(" ", "\u2009"),
        "in parentheses": f"({gold})",
        "in LaTeX's parentheses": f"\\left({gold}\\right)",
        "twice its half": f"2*(({gold})/2)",
        "half its double": f"\\frac{{2({gold})}}{{2}}",
    }
    wrong: Forms = beside(gold) | {
        "plus one": f"{gold} + 1",
        "other sign": f"-({gold})",
        "power as digits": re.sub(r"\^", "", gold) if power else None,
        "another power": re.sub(r"\^(\d+)", lambda m: "^" + str(int(m[1]) + 1), gold) if power else None,
        "another power raised": re.sub(r"\^(\d+)", lambda m: str(int(m[1]) + 1).translate(raised), gold)
        if power
        else None,
        "another letter": gold.replace(letter, "q" if letter != "q" else "w") if letter else None,
        "doubled": f"2({gold})",
        "an equation": f"{gold} = 0",
        "raised digit as a factor": re.sub(r"\^(\d+)", r"*\1", gold) if power else None,
    }
    return right, wrong


def literal(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    right: Forms = {k: v for k, v in wrapped(gold).items() if k not in ("ideographic full stop", "no-break spaces")}
    wrong: Forms = beside(gold) | {
        "capitals": gold.upper() if gold.upper() != gold else None,
        "other case": gold.swapcase() if gold.swapcase() != gold else None,
        "shorter": gold[:-1] or None,
        "longer": gold + gold[-1],
        "turned": gold[::-1] if gold != gold[::-1] else None,
        "comma": f"{gold},",
        "two full stops": f"{gold}..",
        "look-alike": gold.replace("o", "\u043e").replace("e", "\u0435").replace("a", "\u0430")
        if set("oea") & set(gold)
        else None,
    }
    return right, wrong


def clauses(p: Problem) -> tuple[Forms, Forms]:
    words = p.answer.split()
    right: Forms = {k: v for k, v in wrapped(p.answer).items() if k != "ideographic full stop"} | {
        "commas": ", ".join(words),
        "lines": "\n".join(words),
        "lines with CRLF": "\r\n".join(words),
        "no-break spaces": "\u00a0".join(words),
    }
    wrong: Forms = beside(p.answer) | {
        "one word more": f"{p.answer} {words[-1]}",
        "one word less": " ".join(words[:-1]),
        "a digit": f"{p.answer}1",
        "hyphens": "-".join(words),
        "the rule": p.question,
        "joined": "".join(words),
    }
    return right, wrong


def trip_plan(p: Problem) -> tuple[Forms, Forms]:
    days, gold = json.loads(p.answer), p.answer
    right: Forms = {
        "as it is": gold,
        "spaces": f" \t{gold}\n",
        "no spaces": json.dumps(days, separators=(",", ":")),
        "lines": json.dumps(days, indent=2),
        "fence": f"```json\n{gold}\n```",
        "fence with CRLF": f"```json\n{gold}\n```".replace("\n", "\r\n"),
        "backticks": f"`{gold}`",
    }
    wrong: Forms = {
        "in a sentence": f"Go like this: {gold}",
        "one day less": json.dumps(days[:-1]),
        "one day more": json.dumps([*days, days[-1]]),
        "an unknown city": json.dumps([["Nowhere", days[0][1]], *days[1:]]),
        "an unknown sight": json.dumps([[days[0][0], "nothing"], *days[1:]]),
        "cities alone": json.dumps([city for city, _ in days]),
        "single quotes": str(days),
        "two plans": f"{gold} {gold}",
    }
    return right, wrong


def patch(p: Problem) -> tuple[Forms, Forms]:
    old, new = (line[2:] for line in p.answer.split("\n"))
    program = list(p.args["program"])
    after = [new if line == old else line for line in program]
    short = lambda line: re.sub(r"x = x (.) (\d+)", r"x \1= \2", line)  # noqa: E731
    right: Forms = {
        k: v for k, v in wrapped(p.answer).items() if "quotes" not in k and "bold" not in k and "full stop" not in k
    } | {
        "fence of a diff": f"```diff\n{p.answer}\n```",
        "CRLF": p.answer.replace("\n", "\r\n"),
        "no space behind the sign": f"-{old}\n+{new}",
        "no spaces": f"- {old.replace(' ', '')}\n+ {new.replace(' ', '')}",
        "short form": f"- {short(old)}\n+ {short(new)}",
        "whole program": "\n".join(after),
        "whole program in one line": "; ".join(after),
        "whole program in a fence": "```python\n" + "\n".join(after) + "\n```",
        "minus signs": f"\u2212 {old}\n+ {new}".replace("x - ", "x \u2212 "),
    }
    wrong: Forms = {
        "turned": f"- {new}\n+ {old}" if new not in program else None,
        "nothing changes": f"- {old}\n+ {old}",
        "the program as it was": "\n".join(program),
        "a program too short": "\n".join(after[:-1]),
        "a program too long": "\n".join([*after, "x = x + 1"]),
        "another number": f"- {old}\n+ {new}7",
        "only the new line": f"+ {new}",
        "what is not there": f"- x = x + 777\n+ {new}",
        "a sentence": f"change {old} to {new}",
        "another sign": f"- {old}\n+ {new.translate(str.maketrans('+-*', '-+-'))}",
    }
    return right, wrong


def program(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    right: Forms = {
        "as it is": gold,
        "fence": f"```python\n{gold}\n```",
        "fence with CRLF": f"```python\n{gold}\n```".replace("\n", "\r\n"),
        "CRLF": gold.replace("\n", "\r\n"),
        "plain fence": f"```\n{gold}\n```",
        "indented": "\n".join(f"    {line}" for line in gold.split("\n")),
    }
    wrong: Forms = {
        "returns one more": re.sub(r"return (.+)$", r"return [\1]", gold),
        "returns nothing": re.sub(r"return .+$", "pass", gold),
        "another name": gold.replace("def f", "def g"),
        "a sentence": f"Here it is: {gold}",
        "full stop": f"{gold}.",
    }
    return right, wrong


def sql(p: Problem) -> tuple[Forms, Forms]:
    gold = p.answer
    right: Forms = {
        "as it is": gold,
        "semicolon": f"{gold};",
        "fence": f"```sql\n{gold}\n```",
        "fence in capitals": f"```SQL\n{gold};\n```",
        "plain fence": f"```\n{gold};\n```",
        "fence with CRLF": f"```sql\r\n{gold}\r\n```",
        "backticks": f"`{gold}`",
        "lines": gold.replace(" FROM ", "\r\nFROM ").replace(" WHERE ", "\r\n  WHERE "),
        "small words": re.sub(r"\b(SELECT|FROM|WHERE|AND|GROUP BY|JOIN|ON)\b", lambda m: m[0].lower(), gold),
        "with a comment": f"{gold} -- that is all",
    }
    wrong: Forms = {
        "in a sentence": f"The query is {gold}",
        "two queries": f"{gold}; {gold}",
        "fence and more": f"```sql\n{gold}\n```\n```sql\nSELECT 1\n```",
        "one column more": gold.replace(" FROM ", ", 1 FROM ", 1),
        "no rows": f"SELECT * FROM ({gold}) WHERE 0",
        "a table that is not there": "SELECT 1 FROM nothing",
    }
    return right, wrong


def boxes(p: Problem) -> tuple[Forms, Forms]:
    """Boxes in any order, with brackets and commas or without; one more, one less and one that is moved are wrong."""
    gold = p.answer.split("; ")
    right: Forms = {
        "as told": p.answer,
        "turned around": "; ".join(reversed(gold)),
        "in brackets": "; ".join(f"[{', '.join(b.split())}]" for b in gold),
    }
    moved = " ".join(str(int(v) + 3) for v in gold[0].split())
    wrong: Forms = {
        "moved": "; ".join([moved, *gold[1:]]),
        "one more": f"{p.answer}; 0 0 2 2",
        "one less": "; ".join(gold[1:]) or None,
        "three numbers": p.answer.rpartition(" ")[0],
    }
    return right, wrong


def scores(p: Problem) -> tuple[Forms, Forms]:
    """Whole scores in their order, parted by blanks or commas."""
    gold = p.answer.split()
    other = str(int(gold[0]) - 1 or 2)
    right: Forms = {"as told": p.answer, "commas": ",".join(gold), "commas and blanks": ", ".join(gold)}
    wrong: Forms = {
        "another": " ".join([other, *gold[1:]]),
        "one more": f"{p.answer} 1",
        "one less": " ".join(gold[1:]),
        "out of reach": " ".join(["6", *gold[1:]]),
        "words": "good",
    }
    return right, wrong


def segments(p: Problem) -> tuple[Forms, Forms]:
    """Stretches of frames in the order of time, with or without blanks."""
    gold = p.answer.split("; ")
    first, last = gold[0].split("-")
    right: Forms = {
        "as told": p.answer,
        "tight": ";".join(gold),
        "wide": " ; ".join(g.replace("-", " - ") for g in gold),
    }
    wrong: Forms = {
        "longer": "; ".join([*gold[:-1], f"{gold[-1].split('-')[0]}-{int(gold[-1].split('-')[1]) + 1}"]),
        "turned around": "; ".join(reversed(gold)) if len(gold) > 1 else None,
        "one less": "; ".join(gold[1:]) or None,
        "backwards": f"{last}-{first}" if first != last and len(gold) == 1 else None,
        "a point": first,
        "words": "at the start",
    }
    return right, wrong


def clicks(p: Problem) -> tuple[Forms, Forms]:
    """Actions in their order; what is left out is missing on the screen."""
    gold = p.answer.split("; ")
    right: Forms = {"as told": p.answer, "tight": ";".join(gold)}
    wrong: Forms = {
        "one less": "; ".join(gold[:-1]) or None,
        "nothing": "",
        "words": "press it",
        "far too many": "; ".join(gold * 13),
    }
    return right, wrong


def transit(p: Problem) -> tuple[Forms, Forms]:
    """Legs in their order, each "from line to"."""
    gold = p.answer.split("; ")
    x, y, name, *to = gold[-1].split()
    right: Forms = {"as told": p.answer, "tight": ";".join(gold), "wide": " ; ".join(gold)}
    wrong: Forms = {
        "one less": "; ".join(gold[:-1]) or None,
        "no such line": "; ".join([*gold[:-1], " ".join([x, y, "pink", *to])]),
        "backwards": "; ".join([*gold[:-1], " ".join([*to, name, x, y])]),
        "off the map": "; ".join([*gold[:-1], " ".join([x, y, name, "9", "9"])]),
        "words": "by train",
    }
    return right, wrong


def elements(p: Problem) -> tuple[Forms, Forms]:
    """Typed boxes in any order; another type, one that is moved, one less and one more are wrong."""
    gold = p.answer.split("; ")
    kind, *box = gold[0].split()
    other = {"button": "field", "field": "button"}[kind]
    right: Forms = {"as told": p.answer, "turned around": "; ".join(reversed(gold)), "tight": ";".join(gold)}
    wrong: Forms = {
        "another type": "; ".join([" ".join([other, *box]), *gold[1:]]),
        "moved": "; ".join([" ".join([kind, *(str(int(v) + 3) for v in box)]), *gold[1:]]),
        "one less": "; ".join(gold[1:]) or None,
        "one more": f"{p.answer}; button 100 100 106 106",
        "no type": "; ".join([" ".join(box), *gold[1:]]),
    }
    return right, wrong


def screen_tree(p: Problem) -> tuple[Forms, Forms]:
    """Any JSON of the same tree; a widget that is missing, half a tree and a list are wrong."""
    tree = json.loads(p.answer)
    names = list(p.args["widgets"])
    right: Forms = {
        "as told": p.answer,
        "tight": json.dumps(tree, separators=(",", ":")),
        "over lines": json.dumps(tree, indent=1),
        "in one column more": json.dumps({"col": [tree]}),
    }
    wrong: Forms = {
        "half": p.answer[: len(p.answer) // 2],
        "a list": f"[{p.answer}]",
        "one widget": json.dumps({names[0].split()[1]: names[0].split()[0]}),
        "words": "a row of buttons",
        "no such widget": p.answer.replace("button", "slider").replace("field", "slider"),
    }
    return right, wrong


def painted(p: Problem) -> tuple[Forms, Forms]:
    """A prompt whose picture shows it; more words around it, the painter's habit, the other direction and other things are wrong."""
    a, b = p.args["a"], p.args["b"]
    right: Forms = wrapped(p.answer) | {
        "upper case": p.answer.upper(),
        "spaces": p.answer.replace(" ", "  "),
    }
    wrong: Forms = {
        "plain": f"the {a} is larger than the {b}",
        "more words": f"{p.answer}, in oil",
        "half": p.answer.rpartition(" ")[0],
        "another thing": p.answer.replace(b, "wolf"),
        "turned around": p.answer.replace(a, "_").replace(b, a).replace("_", b),
        "nothing": "a picture",
        "all": " ".join(("ant", "bee", "cow", "dog", "rat")),
        "too long": f"{p.answer} {'and ' * 100}",
    }
    return right, wrong


GRAMMAR: dict[str, Callable[[Problem], tuple[Forms, Forms]]] = {
    "assignment": assignment,
    "boxes": boxes,
    "choice": choice,
    "clauses": clauses,
    "clicks": clicks,
    "criteria_verdict": criteria_verdict,
    "exact": exact,
    "expression": expression,
    "formula": formula,
    "grid": grid,
    "item_set": items,
    "layout": layout,
    "literal": literal,
    "moves": moves,
    "number": number,
    "order": nodes,
    "ordered_list": items,
    "patch": patch,
    "path": nodes,
    "pipeline": pipeline,
    "python_function": program,
    "rewriting": rewriting,
    "scores": scores,
    "segments": segments,
    "sql": sql,
    "trip_plan": trip_plan,
    "transit": transit,
    "elements": elements,
    "screen_tree": screen_tree,
    "painted": painted,
}
SCREEN = "Screen of 32: red button 1 2; cursor 0 0\nPress the red button."
# (verifier, reference, knobs, question, right answers, wrong answers)
HAND: tuple[tuple[str, str, dict, str, list[str], list[str]], ...] = (
    ("exact", "C", {}, "Which language?", ["c", "`C`", "C."], ["C#", "C++", "C-", "C\u266f", "C*", "Objective C"]),
    ("exact", "C#", {}, "Which language?", ["c#", "C\u266f", "**C#**"], ["C", "C+", "C##"]),
    ("exact", "F#", {}, "Which key?", ["f#", '"F#"'], ["F", "Fb", "F\u266d"]),
    ("exact", "F", {}, "Which key?", ["f"], ["F#", "F\u266f", "F\u266d"]),
    ("exact", "A", {}, "Which grade?", ["a", "A."], ["A+", "A-", "A\u2212", "A*", "AB"]),
    ("exact", "-500", {}, "Which year?", ["-500", "\u2212500", "\u2013500"], ["500", "+500", "500 BC or so"]),
    (
        "exact",
        "S\u00e3o Paulo",
        {},
        "Where?",
        ["S\u00e3o Paulo", "s\u00e3o paulo", "Sao Paulo", "SAO PAULO.", "Sa\u0303o Paulo", "The S\u00e3o Paulo"],
        ["S\u00e1o Paulo", "S\u00e3o Paul", "Sao Paolo", "Santos", "Sao P\u00e1ulo"],
    ),
    ("exact", "Sao Paulo", {}, "Where?", ["sao paulo"], ["S\u00e3o Paulo II", "S\u00e1o Paulo"]),
    (
        "exact",
        "C\u00f4te d'Ivoire",
        {},
        "Which country?",
        ["C\u00f4te d\u2019Ivoire", "Cote d'Ivoire", "cote dIvoire", "C\u00d4TE D'IVOIRE"],
        ["C\u00f4te", "Ivoire", "Cote d\u00cdvoire"],
    ),
    (
        "exact",
        "Guinea-Bissau",
        {},
        "Which country?",
        ["Guinea Bissau", "guinea\u2013bissau", "Guinea\u2011Bissau"],
        ["Guinea", "Bissau", "Guinea or Bissau"],
    ),
    (
        "exact",
        "Apollo 11",
        {},
        "Which mission?",
        ["Apollo-11", "apollo 11", "Apollo\u201311"],
        ["Apollo 1", "Apollo", "Apollo 11.5", "Apollo -11 -1"],
    ),
    (
        "exact",
        "Simon & Garfunkel",
        {},
        "Who?",
        ["Simon and Garfunkel", "simon & garfunkel"],
        ["Simon", "Garfunkel and Simon", "Simon or Garfunkel"],
    ),
    ("exact", "H2O", {}, "Which formula?", ["H\u2082O", "h2o"], ["H2O2", "HO", "H\u2083O"]),
    (
        "exact",
        "52",
        {},
        "Which?",
        ["52", "52.", "$52$"],
        ["5\u00b2", "5\u2082", "-52", "5.2", "5,2", "52%", "52\u2030", "5/2"],
    ),
    ("exact", "5\u2033", {}, "How long?", ["5\u2033"], ["5\u2032", "5", "5\u2030"]),
    ("exact", "1914-1918", {}, "When?", ["1914\u20131918", "1914-1918."], ["1914", "19141918", "1914-1919"]),
    (
        "exact",
        "Czechia",
        {"aliases": ["Czech Republic"]},
        "Which?",
        ["the Czech Republic", "czechia"],
        ["Czechia, Czech Republic", "Czechoslovakia"],
    ),
    ("exact", "Vitamin A", {}, "Which?", ["vitamin a"], ["Vitamin", "Vitamin A1", "Vitamin A-"]),
    (
        "typed",
        "-500",
        {"kind": "year"},
        "When?",
        ["-500", "\u2212500", "\u2013500", "500 BC", "500 BCE", "500 B.C.", "500bc", "-500."],
        ["500", "500 AD", "AD 500", "500 CE", "+500", "-501", "--500", "-500 BC", "1500"],
    ),
    (
        "typed",
        "500",
        {"kind": "year"},
        "When?",
        ["500", "AD 500", "500 AD", "500 CE", "0500", "\uff15\uff10\uff10", "**500**", "A.D. 500"],
        ["-500", "500 BC", "\u2212500", "500 BCE", "5000", "500s", "500-501", "about 500"],
    ),
    (
        "typed",
        "1789",
        {"kind": "year"},
        "When?",
        ["1789.", "\\boxed{1789}", "1789 AD", "\u00a01789"],
        ["1789 or 1790", "1798", "17\u200b89", "1,789", "-1789", "1789 BC"],
    ),
    (
        "typed",
        "1789-07-14",
        {"kind": "date"},
        "When?",
        [
            "14 July 1789",
            "July 14, 1789",
            "14th July 1789",
            "July 14th, 1789",
            "1789/07/14",
            "1789-07-14.",
            "14 Jul 1789",
            "1789\u201107\u201114",
            "14\u00a0July 1789",
        ],
        [
            "July 1789",
            "1789",
            "15 July 1789",
            "14 June 1789",
            "14 July 1790",
            "1789-14-07",
            "July 4, 1789",
            "-1789-07-14",
        ],
    ),
    (
        "typed",
        "28748",
        {"kind": "number", "unit": "sq km"},
        "How large?",
        [
            "28748",
            "28,748 sq km",
            "28 748 km\u00b2",
            "28\u202f748 km2",
            "28,748 square kilometres",
            "28,748 square kilometers.",
            "28748.0",
        ],
        ["28,748 km", "28,748 sq mi", "28,748 acres", "-28748", "28,7480", "$28748", "2,874.8", "28,749", "28748 km3"],
    ),
    (
        "typed",
        "-5",
        {"kind": "number"},
        "How cold?",
        ["-5", "\u22125", "\u20135", "-5.0", "\uff0d5"],
        ["5", "+5", "-50", "--5", "-5 or 5"],
    ),
    (
        "typed",
        "1290000000000",
        {"kind": "number", "unit": "$"},
        "How much?",
        ["$1.29 trillion", "1.29 trillion", "1,290 billion", "$1,290,000,000,000"],
        ["\u20ac1.29 trillion", "$1.29 billion", "$1.29", "1.29"],
    ),
    (
        "typed",
        "United Kingdom",
        {"aliases": ["UK"]},
        "Which?",
        ["the UK", "uk.", "**United Kingdom**"],
        ["Kingdom", "United Kingdom, UK", "United"],
    ),
    (
        "number",
        "13",
        {},
        "What does it cost?",
        [
            "13",
            "13.",
            "$13",
            "$13.00",
            "$13$",
            "\\$13",
            "\\text{13}",
            "\\boxed{13}",
            "\uff11\uff13",
            "+13",
            "1.3e1",
            "1.3 \u00d7 10^1",
            "1.3 \\times 10^{1}",
            "1300%",
            "26/2",
            "13.0",
        ],
        [
            "-13",
            "13%",
            "1.3",
            "$1.3",
            "\u20ac13",
            "\u00a313",
            "13!",
            "13\u00b2",
            "13 or 14",
            "1 3",
            "thirteen",
            "$13 $14",
            "0x0d",
            "13e",
            "13km",
            "1e999",
            "13,0",
        ],
    ),
    (
        "number",
        "25000",
        {"kind": "integer"},
        "How many mg are 25 g?",
        ["25,000", "25 000", "25\u2009000 mg", "25000 mg.", "25000mg", "\\text{25000}"],
        ["25000 g", "25000 Mg", "25000 kg", "$25000", "25.000", "2.5e4", "25000.0", "25,00"],
    ),
    (
        "number",
        "25",
        {},
        "What percent of 8 is 2?",
        ["25", "25%", "25 %", "25\\%", "25 percent"],
        ["0.25", "2500%", "25 per mille", "75%"],
    ),
    (
        "number",
        "3/2",
        {},
        "Compute 3/4 * 2.",
        [
            "1.5",
            "1 1/2",
            "1\u00bd",
            "\\frac{3}{2}",
            "\\frac32",
            "1\\frac{1}{2}",
            "3\u20442",
            "6/4",
            "150%",
            "3 / 2",
            "\\dfrac{6}{4}",
        ],
        ["1/2", "11/2", "-3/2", "2/3", "1.50001", "1 3/2", "1.5%", "3:2", "32", "1,5", "3//2"],
    ),
    (
        "number",
        "1/2",
        {},
        "Compute 1/4 * 2.",
        [".5", "0.5", "\u00bd", "50%", "\\frac{1}{2}", "$\\frac{1}{2}$", "2/4"],
        ["-.5", "5", "0.05", ".05", "1/-2", "half", "50", "0,5"],
    ),
    (
        "number",
        "-4",
        {},
        "Solve 2x + 8 = 0.",
        ["x = -4", "x=\u22124", "$x = -4$", "-4", "\\boxed{x = -4}"],
        ["x = 4", "y = -4", "2x = -4", "x = -4 or 4", "x > -4", "x = y = -4"],
    ),
    (
        "symbolic",
        "x^3 + 2*x",
        {"variables": ["x"]},
        "Simplify.",
        [
            "x\u00b3 + 2x",
            "x^{3} + 2x",
            "x*(x\u00b2 + 2)",
            "2\u00b7x + x**3",
            "$x^3+2x$",
            "x^3 + 2 \\times x.",
            "\\left(x^2+2\\right)x",
            "[x^2 + 2]*x",
        ],
        ["x\u00b2 + 2x", "x3 + 2x", "3x + 2x", "x^3 \u2212 2x", "x^3 + 2", "x\u00b3\u00b2 + 2x", "f(x) = x^3 + 2x"],
    ),
    (
        "symbolic",
        "sqrt(2)/2",
        {},
        "Simplify.",
        ["\u221a2/2", "\\frac{\\sqrt{2}}{2}", "1/\\sqrt{2}", "sqrt(2) \u00f7 2", "2^(-1/2)", "\\sqrt{\\frac{1}{2}}"],
        ["0.7071067811865476", "\u221a(2/2)", "2/sqrt(2)", "-\u221a2/2", "sqrt(2/2)"],
    ),
    (
        "symbolic",
        "pi/2",
        {},
        "Which angle?",
        ["\u03c0/2", "\\frac{\\pi}{2}", "\u03c0 \u00f7 2", "0.5*pi"],
        ["2/pi", "1.5707963", "\u03c0", "p/2"],
    ),
    (
        "latex",
        "\\frac{1}{6}",
        {},
        "Half of one third?",
        ["$\\frac{1}{6}$", "\\boxed{\\frac{1}{6}}", "1/6", "\\frac{2}{12}.", "\\(\\frac16\\)"],
        ["\\frac{1}{5}", "-\\frac{1}{6}", "\\frac{1}{6} or 1", "x = \\frac{1}{6}"],
    ),
    (
        "latex",
        "x^{3}-x",
        {},
        "Expand.",
        ["x\u00b3 \u2212 x", "x^3-x", "x\u00b7(x\u00b2 \u2212 1)"],
        ["x\u00b2 \u2212 x", "x^{3}+x", "x3-x"],
    ),
    (
        "ranked_list",
        "[2] > [1] > [3]",
        {"relevance": [1, 2, 0]},
        "Rank.",
        ["[2]>[1]>[3]", "2 > 1 > 3", "[2] > [1] > [3].", "```\n[2] > [1] > [3]\n```", "[2] \uff1e [1] \uff1e [3]"],
        ["[1] > [2] > [3]", "[2] > [1]", "[2] < [1] < [3]", "[2] > [1] > [3] > [4]", "213"],
    ),
    ("literal", "a*b", {}, "Write a*b.", ["a*b", " a*b "], ["ab", "`a*b`", "a*b.", "*a*b*"]),
    *(
        (
            verifier,
            reference,
            {},
            question,
            [reference, f"{reference}.", f"**{reference}**."],
            [f"{reference}..", f"{reference}!"],
        )
        for verifier, reference, question in (
            ("segments", "1-3", "In which frames?"),
            ("segments", "2-3; 5-8", "In which frames?"),
            ("boxes", "25 9 31 15; 1 17 7 23", "Which boxes?"),
            ("clicks", "click 1 2", SCREEN),
            ("clicks", "click 1 2; click 1 2; click 1 2", SCREEN),
        )
    ),
    ("literal", "C.", {}, "Copy the text.", ["C.", '"C."'], ["C", "c.", "C..", "C#."]),
    (
        "item_set",
        "none",
        {},
        "Which rules are broken?",
        ["none", "None.", "**none**"],
        ["0", "1", "none 1", "no", "any"],
    ),
    (
        "python_function",
        "def f(x):\n    return x + 1",
        {"function": "f", "inputs": [[1], [-1]], "expected": [2, 0]},
        "Add one.",
        ["f = lambda x: x + 1"],
        ["f = 2"],
    ),
)


def table() -> Iterator[Case]:
    """All cases, those of the families first; equal answers to one problem once."""
    for module in sorted(pkgutil.iter_modules(synth.families.__path__), key=lambda m: m.name):
        if not module.name.startswith("_"):
            source = import_module(f"synth.families.{module.name}")
            for level in range(1, len(source.LADDER) + 1):
                drawn = (getattr(source, module.name)(11, "train", i, levels=[level]) for i in range(4 * ITEMS))
                yield from _of([p for p in drawn if isinstance(p, Problem)][:ITEMS], level)
    for verifier, reference, args, question, right, wrong in HAND:
        p = Problem.make(prompt=question, answer=reference, verifier=verifier, args=args, family="hand", split="train")
        yield from (Case(p, answer, True, "by hand") for answer in right)
        yield from (Case(p, answer, False, "by hand") for answer in wrong)


def _of(problems: list[Problem], level: int) -> Iterator[Case]:
    for p in problems[: FEW.get(problems[0].verifier, ITEMS)] if problems else ():
        if p.verifier == "python_function" and level > 1:
            continue
        seen: set[str] = set()
        right, wrong = GRAMMAR[p.verifier](p)
        for forms, is_right in ((right, True), (wrong, False)):
            for how, answer in forms.items():
                if answer is not None and answer not in seen:
                    seen.add(answer)
                    yield Case(p, answer, is_right, how)
