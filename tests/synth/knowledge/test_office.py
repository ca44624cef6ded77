"""PDF, Word, spreadsheets and RDF as sources: what is read, and one sentence for what cannot be."""

import datetime
import sys
import zipfile

import docx
import openpyxl
import pypdf
import pytest

from synth.knowledge import office
from synth.knowledge.documents import read_document
from synth.knowledge.ingest import build
from synth.knowledge.sources import read_source
from tasks.knowledge.guess import guess


def pdf(path, pages, title="", password=""):
    """A PDF of pages of lines, in a font that every reader has."""
    writer = pypdf.PdfWriter()
    name = pypdf.generic.NameObject
    fonts = pypdf.generic.DictionaryObject({name("/Type"): name("/Font"), name("/Subtype"): name("/Type1")})
    fonts[name("/BaseFont")] = name("/Helvetica")
    for lines in pages:
        page = writer.add_blank_page(600, 800)
        drawn = "".join(f"BT /F1 12 Tf 50 {700 - 20 * i} Td ({line}) Tj ET\n" for i, line in enumerate(lines))
        stream = pypdf.generic.StreamObject()
        stream.set_data(drawn.encode())
        page[name("/Contents")] = writer._add_object(stream)
        inner = pypdf.generic.DictionaryObject({name("/F1"): fonts})
        page[name("/Resources")] = pypdf.generic.DictionaryObject({name("/Font"): inner})
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(path)
    return path


def test_the_pages_of_a_pdf_are_one_document(tmp_path):
    path = pdf(tmp_path / "n.pdf", [["Capital: Lor", "Its har-", "bour is old"], ["Area: 12 sq km"]], title="Norvia")
    (page,) = read_document(path, "n.pdf")
    assert (page.title, page.text) == ("Norvia", "Capital: Lor\nIts harbour is old\nArea: 12 sq km")
    rows = read_source(tmp_path, "documents", name="d", type="country").rows
    assert {(r.subject, r.relation, r.object) for r in rows} >= {("Norvia", "capital", "Lor")}


def test_a_pdf_without_a_title_is_called_as_its_first_line(tmp_path):
    (page,) = read_document(pdf(tmp_path / "n.pdf", [["Norvia", "Capital: Lor"]]), "n.pdf")
    assert page.title == "Norvia"


def test_a_word_file_keeps_its_heading_and_its_tables(tmp_path):
    document = docx.Document()
    document.add_heading("Norvia", 1)
    document.add_paragraph("Norvia is a country.")
    table = document.add_table(2, 2)
    for row, cells in zip(table.rows, (("Capital", "Lor"), ("Area", "12 sq km")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    wide = document.add_table(1, 3)
    for cell, text in zip(wide.rows[0].cells, "abc", strict=True):
        cell.text = text
    document.save(tmp_path / "n.docx")
    (page,) = read_document(tmp_path / "n.docx", "n.docx")
    assert page.title == "Norvia"
    assert page.text.splitlines() == ["Norvia is a country.", "Capital: Lor", "Area: 12 sq km", "a  b  c"]


def test_a_sheet_is_read_as_a_table(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "firms"
    for row in (
        [],
        ["Name", "Founded", None, "Staff", "Public"],
        ["Aro", datetime.datetime(1990, 2, 3), "x", 12.0, True],
    ):
        book.active.append(row)
    book.active.append(["Bel", None, None, 1.5, False])
    book.create_sheet("other").append(["a"])
    book.save(tmp_path / "b.xlsx")
    guessed = guess(tmp_path / "b.xlsx")
    assert (guessed["kind"], guessed["sheet"], guessed["type"], guessed["id"]) == (
        "sheet_records",
        "firms",
        "firm",
        "Name",
    )
    reading = read_source(tmp_path / "b.xlsx", "sheet_records", name="b", type="firm")
    triples = {(r.subject, r.relation, r.object) for r in reading.rows}
    assert triples >= {("Aro", "Founded", "1990-02-03"), ("Aro", "Staff", "12"), ("Bel", "Staff", "1.5")}
    assert not any("x" in t for t in triples), "a column without a heading"
    with pytest.raises(ValueError, match="has no sheet 'none': its sheets are firms, other"):
        read_source(tmp_path / "b.xlsx", "sheet_records", name="b", sheet="none")


TURTLE = """
@prefix e: <https://example.org/> . @prefix r: <http://www.w3.org/2000/01/rdf-schema#> .
e:Norvia r:label "Norvia"@en, "Norvie"@fr, "Old Norvia"@en ; a e:SmallCountry ; e:capitalCity e:lor_town ; e:area 12 ;
  e:motto "Toujours"@fr ; e:ruler [ e:name "X" ] .
e:lor_town a e:Town .
"""


def test_rdf_is_read_by_its_labels(tmp_path):
    (tmp_path / "g.ttl").write_text(TURTLE)
    assert guess(tmp_path / "g.ttl")["kind"] == "rdf_triples"
    reading = read_source(tmp_path / "g.ttl", "rdf_triples", name="g")
    triples = {(r.subject, r.relation, r.object, r.subject_type, r.object_type) for r in reading.rows}
    assert triples == {
        ("Norvia", "capital_city", "lor town", "small_country", "town"),
        ("Norvia", "area", "12", "small_country", ""),
    }
    assert reading.aliases == {("small_country", "Norvia"): ("Old Norvia",)}
    assert [q.reason for q in reading.quarantined] == ["blank_node", "blank_node"]


def test_an_address_of_which_nothing_is_stated_is_a_thing(tmp_path):
    lines = ["@prefix e: <https://example.org/> ."]
    lines += [
        "e:Aro e:colour e:dark_red ; e:near e:Bel ; e:motto 'x' .",
        "e:Bel e:colour e:dark_red ; e:near e:Aro ; e:motto 'y' .",
    ]
    (tmp_path / "g.ttl").write_text("\n".join([*lines, "e:Cor e:colour e:blue ; e:seen 'no', 'yes', e:blue ."]))
    built = build([read_source(tmp_path / "g.ttl", "rdf_triples", name="g")])
    kb = built.kb
    assert not built.quarantined and kb.forward("thing:Aro", "colour") == ("thing:dark red",)
    assert set(kb.backward("colour", "thing:dark red")) == {"thing:Aro", "thing:Bel"}
    assert kb.relations["near"].range == "thing", "subjects lead on as before"
    assert kb.relations["motto"].literal and kb.relations["seen"].literal, "texts, for the most part"


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("x.pdf", lambda p: p.write_bytes(b"%PDF-1.4 cut"), "no PDF that can be read"),
        ("x.pdf", lambda p: pdf(p, [["a"]], password="s"), "locked by a password"),
        ("x.pdf", lambda p: pdf(p, [[]]), "scanned pages need OCR first"),
        ("x.docx", lambda p: p.write_bytes(b"PK cut"), "damaged, or not what its name says"),
        ("x.docx", lambda p: zipfile.ZipFile(p, "w").writestr("a", "b"), "no Word file that can be read"),
    ],
)
def test_a_document_that_cannot_be_read_is_quarantined_with_its_reason(tmp_path, name, make, says):
    make(tmp_path / name)
    (tmp_path / "sound.txt").write_text("Norvia\nCapital: Lor\n")
    (bad,) = read_source(tmp_path, "documents", name="d").quarantined
    assert says in bad.evidence and name in bad.evidence


@pytest.mark.parametrize(
    ("name", "data", "kind", "says"),
    [
        ("x.xlsx", b"PK cut", "sheet_records", "damaged, or not what its name says"),
        ("x.ttl", b"a b c d e .", "rdf_triples", "is not RDF"),
        ("x.nt", b"hello\n", "rdf_triples", "is not RDF"),
        ("x.ttl", b"", "rdf_triples", "holds no statement"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence(tmp_path, name, data, kind, says):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=says):
        read_source(tmp_path / name, kind, name=name)


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(office, "LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "0" * 2000)
    with pytest.raises(ValueError, match="would unpack to 2,000 bytes"):
        read_source(tmp_path / "x.xlsx", "sheet_records", name="x")


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    with pytest.raises(
        ValueError, match=r"PDF is read by pypdf, which is not installed: pip install 'espalier\[files\]'"
    ):
        list(read_document(tmp_path / "x.pdf", "x"))
