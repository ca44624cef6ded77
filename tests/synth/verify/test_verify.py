"""Every file of synth/verify scores its own reference 1 and every negative control 0; then what is special to each."""

from __future__ import annotations

import pkgutil
import re
import threading
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import synth.verify
from synth.types import Problem, Scored, Unscorable
from synth.verify import extract_answer, verify
from synth.verify.exact import normalise
from synth.verify.expression import parse as parse_expression
from synth.verify.number import parse as parse_number

ALL = sorted(m.name for m in pkgutil.iter_modules(synth.verify.__path__) if not m.name.startswith("_"))
REQUIRES = {name: getattr(import_module(f"synth.verify.{name}"), "REQUIRES", None) for name in ALL}
HERE = [name for name in ALL if REQUIRES[name] is None or find_spec(REQUIRES[name])]
NAMES = [
    name
    if name in HERE
    else pytest.param(
        name, marks=pytest.mark.skip(reason=f"{REQUIRES[name]} is not installed: pip install 'espalier[math]'")
    )
    for name in ALL
]
# Cyrillic letters, full width, Arabic-Indic digits
LOOK_ALIKES = str.maketrans("aeoTAMmcpxUDLR0123456789", "аеоТАМтсрхＵＤＬＲ٠١٢٣٤٥٦٧٨٩")


def problem(name: str, answer: str | None = None, **args) -> Problem:
    example = dict(import_module(f"synth.verify.{name}").EXAMPLE)
    if answer is not None:
        example |= {"answer": answer, "args": args}
    return Problem.make(verifier=name, family="test", split="train", **example)


def value(p: Problem, answer: str) -> float:
    verdict = verify(p, answer)
    assert isinstance(verdict, Scored), verdict
    return verdict.value


def controls(gold: str) -> dict[str, str]:
    """name -> an answer that no verifier may accept. `gold` is accepted."""
    return {
        "empty": "",
        "blank": " \n\t ",
        "constant": "0",
        "yes": "yes",
        "echo in a sentence": f"The answer is {gold}",
        "echo with a tail": f"{gold} I think",
        "echo in tags": f"<answer>{gold}</answer>",
        "two guesses": f"{gold} or 42",
        "list of guesses": f"{gold}, 1, 2, 3",
        "lines of guesses": f"41\n{gold}\n43",
        "twice": f"{gold} {gold}",
        "megabyte": "1" * 1_000_000,
        "echo in a megabyte": gold + " 1" * 500_000,
        "nested parentheses": "(" * 5000 + gold + ")" * 5000,
        "unclosed parentheses": "(" * 100_000,
        "long sum": "+".join(["1"] * 100_000),
        "tower": "9**9**9**9",
        "injection": "__import__('os').system('true')",
        "injection beside": f"[{gold} for _ in [exit(0)]][0]",
        "object that equals": "type('E', (), {'__eq__': lambda s, o: True})()",
        "look-alikes": gold.translate(LOOK_ALIKES),
        "invisible characters": gold[:1] + "\u200b" + gold[1:],
        "comment": "-- nothing is asked",
        "null byte": gold + "\0",
        "not a number": "nan",
        "infinity": "1e999",
        "format string": "{0}%s${answer}",
        "lone surrogate": "\ud800",
    }


@pytest.mark.parametrize("name", NAMES)
def test_reference_is_right(name):
    module = import_module(f"synth.verify.{name}")
    assert hasattr(module, "EXAMPLE"), f"synth/verify/{name}.py needs EXAMPLE, the arguments of a Problem for this test"
    assert value(problem(name), problem(name).answer) == 1.0
    assert value(problem(name), f"  {problem(name).answer} ") == 1.0


@pytest.mark.parametrize("control", controls("x"))
@pytest.mark.parametrize("name", NAMES)
def test_negative_control_is_wrong(name, control):
    p = problem(name)
    answer = controls(p.answer)[control]
    assert answer != p.answer, "this control does not change the example's reference: choose another EXAMPLE"
    assert value(p, answer) == 0.0


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=60))
def test_any_text_has_a_verdict(name, text):
    assert value(problem(name), text) in (0.0, 1.0)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "external"])  # its environment keeps the reference
def test_unreadable_reference_is_unscorable(name):
    p = problem(name, answer="", **problem(name).args)
    assert isinstance(verify(p, "1"), Unscorable)


def test_no_answer_and_unknown_verifier():
    assert verify(problem("number"), None) == Scored(value=0.0, parts={"parsed": 0.0})
    with pytest.raises(LookupError, match="synth/verify does not hold"):
        verify(Problem.make(prompt="?", answer="1", verifier="oracle_of_delphi", family="test", split="train"), "1")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("<answer>5</answer>", "5"),
        ("<answer>4</answer> no: <answer> 5 </answer>", "5"),
        ("<answer>4 <answer>5</answer>", "5"),
        ("<answer>5</answer> and <answer>6", "5"),
        ("<answer>5</answer></answer>", "5"),
        ("<answer></answer>", ""),
        ("</answer>5<answer>", None),
        ("5", None),
        ("<answer>" * 100_000, None),
    ],
)
def test_extract_answer(text, expected):
    assert extract_answer(text) == expected


@pytest.mark.parametrize(
    "gold, answer, same",
    [
        ("São Paulo", "são  paulo.", True),
        ("the Netherlands", "Netherlands", True),
        ("Guinea-Bissau", "guinea bissau", True),
        ("Côte d'Ivoire", "CÔTE D\u2019IVOIRE", True),
        ("The The", "The", True),
        ("The", "", False),
        ("Vitamin A", "Vitamin", False),
        ("-5", "5", False),
        ("1.5", "15", False),
        ("1999", "1999.", True),
        ("\ufb01sh", "FISH", True),
    ],
)
def test_exact_normalisation(gold, answer, same):
    assert value(problem("exact", gold), answer) == float(same)


def test_exact_alias():
    p = problem("exact", "Czechia", aliases=["Czech Republic"])
    assert value(p, "the czech republic") == 1.0 and value(p, "Czechia, Czech Republic") == 0.0


@given(st.text(max_size=40))
def test_normalise_is_idempotent_up_to_articles(text):
    once = normalise(text)
    assert normalise("x " + once) == ("x " + once).strip()


def test_plain_text_is_normalised_as_letter_by_letter(monkeypatch):
    rng, signs = Random(0), "abcAZ019 .,:/?!()[]{}%$+<=>^`|~_;\"\\\t&#*'-@"
    texts = ["".join(rng.choices(signs, k=rng.randrange(12))) for _ in range(20_000)]
    texts += [a + b + c for a in signs for b in signs for c in "a1 "]
    here = [normalise(t) for t in texts]
    with monkeypatch.context() as m:
        m.setattr("synth.verify.exact._BESIDE", re.compile(""))  # every text
        assert [normalise(t) for t in texts] == here
    assert normalise("The (old) town, 50%!") == "old town 50%"


@given(st.fractions(max_denominator=10**6), st.integers(1, 50))
def test_number_any_writing_of_a_fraction(value_, factor):
    text = f"{value_.numerator * factor}/{value_.denominator * factor}"
    assert parse_number(text) == (value_, False)
    assert value(problem("number", str(value_)), text) == 1.0


@pytest.mark.parametrize(
    "text", ["1,23", "1/0", "1e31", "--1", "1.", ".", "1e", "0x10", "1_000", "1/2/3", "１２", "²", "1" * 81]
)
def test_number_refuses(text):
    assert parse_number(text) is None


def test_number_plain_integers():
    assert parse_number("007") == parse_number("+7") == (Fraction(7), True)
    assert parse_number("9" * 80) == (Fraction(int("9" * 80)), True)
    assert parse_number("\u0667") is None


def test_number_kinds():
    assert parse_number(".5") == (Fraction(1, 2), False) and parse_number("1.5e3") == (Fraction(1500), False)
    assert parse_number("2 1/2") == (Fraction(5, 2), False) and parse_number("2 3/2") is None
    assert parse_number("1,234.50") == (Fraction(2469, 2), False) and parse_number("\u22127") == (Fraction(-7), True)
    p = problem("number", "3", kind="integer")
    assert value(p, "3") == 1.0 and value(p, "3.0") == 0.0 and value(p, "6/2") == 0.0


OPERATIONS = st.recursive(
    st.integers(0, 20).map(str),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
    max_leaves=6,
)


@given(OPERATIONS)
def test_expression_agrees_with_python_on_its_own_language(text):
    import ast

    def walk(node):  # an evaluator of Python's own parse of the same text
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        a, b = walk(node.left), walk(node.right)
        return {"Add": lambda: a + b, "Sub": lambda: a - b, "Mult": lambda: a * b, "Div": lambda: a / b}[
            type(node.op).__name__
        ]()

    try:
        expected = walk(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        expected = None
    assert parse_expression(text).value == expected


@pytest.mark.parametrize("text", ["2+", "(2", "2)", "-2", "2**3", "2 3", "02", "2//3", "2.0", "()", "x", "1234567890"])
def test_expression_refuses(text):
    with pytest.raises(ValueError):
        parse_expression(text)


def test_expression_precedence_and_multiset():
    assert (
        parse_expression("8-3-2").value == 3
        and parse_expression("2+3*4/6").value == 4
        and parse_expression("1/(2-2)").value is None
    )
    p = problem("expression", "2 * 3 + 4", numbers=[2, 3, 4], target=10)
    assert [value(p, a) for a in ("4+3*2", "2+4+4", "5+5", "10", "2*3+4+0", "2*3+4=10")] == [1, 0, 0, 0, 0, 0]


def test_ordered_list():
    p = problem("ordered_list", "3 7 10")
    assert [
        value(p, a) for a in ("[3, 7, 10]", "3,7,10", "03 7 10", "7 3 10", "3 7", "3 7 10 11", "3,,7,10", "3 7 ten")
    ] == [
        1,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
    ]
    assert verify(p, "7 3 10").parts["in_place"] == pytest.approx(1 / 3)
    assert value(problem("ordered_list", "Bern, New York"), "bern, new york") == 1.0


EQUAL = [
    ("x*(x+1)", "x^2 + x"),
    ("(x+1)^2/2", "x^2/2 + x + 1/2"),
    ("2x", "x*2"),
    ("1/3", "2/6"),
    ("0.5", "1/2"),
    ("sqrt(8)", "2*sqrt(2)"),
    ("sin(x)^2 + cos(x)^2", "1"),
    ("(x^2 - 1)/(x - 1)", "x + 1"),
    ("-(x - y)", "y - x"),
    ("exp(log(2))", "2"),
    ("3(x + 1)", "3x + 3"),
    ("x**2", "x^2"),
    ("2^(1/2)", "sqrt(2)"),
    ("--x", "x"),
    ("abs(-3)", "3"),
]
DIFFERENT = [
    ("x^2", "x^3"),
    ("1/3", "0.3333333333"),
    ("sqrt(2)", "1.4142135623730951"),
    ("x + y", "x - y"),
    ("x", "y"),
    ("2x", "x^2"),
    ("pi", "22/7"),
    ("-x", "x"),
    ("1", "-1"),
    ("x^2", "2x"),
    ("sin(x)", "cos(x)"),
    ("(x+1)^2", "x^2 + 1"),
]
HOSTILE = [
    "9^9^9^9",
    "9^(9^9)",
    "2^99999999999",
    "(((((x+1)^40)^40)^40)^40)",
    "10^40^40",
    "exp(exp(exp(100)))",
    "x" * 150,
    "0^0",
    "0^-1",
    "1/0",
    "1/(x-x)",
    "sqrt(-1)",
    "log(0)",
    "lambda: 0",
    "x.__class__",
    "().__class__",
    "__import__('os')",
    "S(1)",
    "oo",
    "zoo",
    "I",
    "E",
    "x[0]",
    "x if x else y",
    "x=1",
    "1e999",
    "2 3",
    "x x",
    "(",
    ")",
    "sqrt x",
    "sqrt()",
    "1..2",
    "x!",
    "^x",
    "x^",
    "2^x^x",
    "2^x",
    "+" * 150 + "x",
    "(" * 60 + "x" + ")" * 60,
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_functions_in_two_forms(gold, answer):
    for a, b in ((gold, answer), (answer, gold)):
        assert value(problem("symbolic", a, variables=["x", "y"]), b) == 1.0


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_near_misses_are_wrong(gold, answer):
    assert value(problem("symbolic", gold, variables=["x", "y"]), answer) == 0.0


@pytest.mark.parametrize("answer", HOSTILE)
def test_a_hostile_expression_is_no_more_than_wrong(answer):
    assert value(problem("symbolic", "x^2 + 1", variables=["x", "y"]), answer) == 0.0


def test_expressions_are_scored_off_the_main_thread():
    values = []
    thread = threading.Thread(target=lambda: values.append(value(problem("symbolic", "x^2", variables=["x"]), "x*x")))
    thread.start()
    thread.join()
    assert values == [1.0]


@pytest.mark.skipif("latex" not in HERE, reason="math_verify is not installed: pip install 'espalier[math]'")
@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("\\frac{1}{2}", "0.5", True),
        ("\\frac{1}{2}", "\\dfrac{2}{4}", True),
        ("2\\sqrt{2}", "\\sqrt{8}", True),
        ("x^{2}+x", "x(x+1)", True),
        ("\\frac{1}{2}", "\\frac{1}{3}", False),
        ("2", "9^{9^{9^{9}}}", False),
        ("2", "2 or 3", False),
        ("2", "x=2", False),
        ("2", "10^{99999}", False),
        ("2", "\\input{/etc/passwd}", False),
    ],
)
def test_latex(gold, answer, right):
    assert value(problem("latex", gold), answer) == float(right)


@pytest.mark.skipif("latex" not in HERE, reason="math_verify is not installed: pip install 'espalier[math]'")
def test_symbolic_and_math_verify_agree_where_both_read():
    for gold, answer in [("x*(x+1)", "x^2 + x"), ("1/3", "2/6"), ("x^2", "x^3"), ("x + y", "x - y"), ("2*x", "x*2")]:
        assert value(problem("symbolic", gold, variables=["x", "y"]), answer) == value(problem("latex", gold), answer)


@pytest.mark.parametrize("name", ["sql", "sql_graded"])
def test_a_comment_is_not_the_empty_result(name):
    p = problem(name)
    nobody = replace(p, answer="SELECT name FROM t WHERE age > 1000 AND age < 0")
    assert value(nobody, nobody.answer) == 1.0
    assert value(nobody, "-- nobody") == 0.0
