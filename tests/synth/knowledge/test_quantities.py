"""Numbers with units and dates, in every spelling, and what is neither."""

import pytest

from synth.quantities import Quantity, date, find_date, quantity, without_note, year


@pytest.mark.parametrize(
    "text, number, unit",
    [
        ("28,748 sq km", "28748", "sq km"),
        ("68,512,806 (2025 est.)", "68512806", ""),
        ("$1.29 trillion (2023 est.)", "1290000000000", "$"),
        ("-$30.334 billion (2023 est.)", "-30334000000", "$"),
        ("12.3% of GDP (2021)", "12.3", "% of GDP"),
        ("10.88 births/1,000 population (2025 est.)", "10.88", "births/1,000 population"),
        ("0.97 male(s)/female", "0.97", "male(s)/female"),
        ("12% male, 13% female", None, None),
        ("\N{MINUS SIGN}2 m", "-2", "m"),
        ("1.50 kg.", "1.5", "kg"),
        ("0", "0", ""),
        ("-0.0", "0", ""),
        ("12", "12", ""),
        ("1,2,3", None, None),
        ("about a dozen", None, None),
        ("17-30 years", None, None),
        ("Mont Blanc 4,810 m", None, None),
        ("", None, None),
    ],
)
def test_quantity(text: str, number: str | None, unit: str | None) -> None:
    assert quantity(text) == (None if number is None else Quantity(number, unit))


@pytest.mark.parametrize(
    "text", ["14 July 1789", "July 14, 1789", "14th of July 1789", "1789-07-14", "Jul. 14 1789", "14 July 1789 (Paris)"]
)
def test_dates_have_one_form(text: str) -> None:
    assert date(text) == "1789-07-14"


@pytest.mark.parametrize(
    "text", ["1789", "in July 1789", "31 June 1990", "45 May 1900", "1789-13-01", "14 July 1789 and later", ""]
)
def test_what_is_no_date(text: str) -> None:
    assert date(text) is None


def test_years() -> None:
    assert (
        year("born 1789 and died 1790") is None and year("in 1789") == "1789" and year("1789 and again 1789") == "1789"
    )


def test_a_day_that_no_month_has_is_no_date() -> None:
    assert date("31 June 1990") is None and date("29 February 1996") == "1996-02-29"


def test_the_first_date_and_its_place() -> None:
    text = "He died on 3 May 1950, after 1 April 1949."
    assert find_date(text) == ("1950-05-03", 11, 21) and text[11:21] == "3 May 1950"


def test_notes_and_hostile_lengths() -> None:
    assert without_note("a (b) [c]") == "a"
    for hostile in ("(" * 200_000, "9" * 1_000_000, "1," * 300_000, "(a) " * 100_000):
        assert quantity(hostile) is None
        assert find_date(hostile) is None and year(hostile) is None
