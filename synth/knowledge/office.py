"""Text of PDF and Word files, by pypdf and python-docx (extra `files`)."""

from __future__ import annotations

import importlib
import re
import zipfile
from pathlib import Path
from typing import Any

LARGEST = 1 << 28  # the most bytes after unpacking: a small archive can expand to gigabytes
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_HEADING = re.compile(r"(?:Title|Heading [1-9])$")


def library(name: str, what: str) -> Any:
    """The module. Raises ValueError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"{what} is read by {name}, which is not installed: pip install 'espalier[files]'") from None


def whole(path: Path, name: str) -> None:
    """Raises ValueError for a file that is not an archive (as XLSX and DOCX are), or that would unpack to too much."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{name} is damaged, or not what its name says ({error})") from error
    if size > LARGEST:
        raise ValueError(f"{name} would unpack to {size:,} bytes, more than {LARGEST:,}: split it")


def pdf(path: Path, name: str) -> tuple[str, str]:
    """(title, text) of the pages, without pictures. The title is that of the file's metadata, if any.
    Raises ValueError for a file that is damaged or locked by a password."""
    pypdf = library("pypdf", "PDF")
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ValueError("it is locked by a password: save it without one")
        text = "\n".join(page.extract_text() for page in reader.pages)
        title = str((reader.metadata and reader.metadata.title) or "")
    except (pypdf.errors.PyPdfError, OSError, KeyError, RecursionError) as error:
        raise ValueError(f"{name} is no PDF that can be read ({error})") from error
    return title, _HYPHEN.sub("", text)


def docx(path: Path, name: str) -> tuple[str, str]:
    """(title, text): paragraphs, and each table row as a line, `key: value` if it has two cells. The title is the first
    heading, which is then removed from the text. Raises ValueError for a damaged file."""
    module = library("docx", "a Word file")
    whole(path, name)
    try:
        document = module.Document(str(path))
    except (module.exceptions.PythonDocxError, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{name} is no Word file that can be read ({error})") from error
    title, lines = "", []
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                cells = list(dict.fromkeys(" ".join(c.text.split()) for c in row.cells))
                lines.append(": ".join(cells) if len(cells) == 2 and cells[0] else "  ".join(cells))
        elif not title and block.text.strip() and _HEADING.match(block.style.name or ""):
            title = block.text.strip()
        else:
            lines.append(block.text)
    return title or document.core_properties.title, "\n".join(lines)
