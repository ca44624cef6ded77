"""The site of the documents: `make docs` builds it into .espalier/site with Zensical, and fails on a broken link.

The documents are written for the repository: they link to each other and to files of the code by relative paths. For
the site they are copied in the same layout; a link to a file or folder of the code leads to a page that shows it. The
navigation is the list in docs/README.md, so that a new page is named in one place. After the build every link of every
page is followed, headings included.

    python -m docs.generators.site [OUT]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import html

from tasks.core.paths import CODE as ROOT

OUT = ROOT / ".espalier" / "site"
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
# The tests run a block with this word behind its language; Zensical takes such a block for text.
RUN = re.compile(r"^(```\w+) run$", re.MULTILINE)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".c": "c", ".h": "c", ".json": "json"}
CONFIG = """[project]
site_name = "Espalier"
site_description = "Post-training of language models as one reproducible pipeline"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = [
{nav}
]

[project.theme]
language = "en"
font = false
features = ["navigation.sections", "navigation.top", "content.code.copy", "search.highlight"]
"""


def pages() -> list[Path]:
    """The pages of the site, by their place in the repository."""
    top = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "data/atlas/README.md"]


def nav() -> list[tuple[str, list[tuple[str, str]]]]:
    """(section, [(title, page)]) of the list in docs/README.md. Raises ValueError for a page that no section names."""
    text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    sections = []
    for title, line in re.findall(r"^- \*\*(.+?)\*\*: (.+)$", text, re.MULTILINE):
        named = [(t, (ROOT / "docs" / link).resolve()) for t, link in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", line)]
        sections.append((title, [(t, _page(p).as_posix()) for t, p in named]))
    known = {p for _, items in sections for _, p in items}
    for page in pages():
        name, folder = page.relative_to(ROOT).as_posix(), page.parent
        below = folder in (ROOT / "docs/stages", ROOT / "docs/examples")  # reached from a page that is in the list
        if name not in known | {"README.md", "docs/README.md"} and not below:
            raise ValueError(f"no section of docs/README.md names {name}: add it, or nobody finds the page")
    return sections


def _page(path: Path) -> Path:
    """Where in the site a file of the repository is: a page where it stands, what is code on a page below `source`."""
    place = path.relative_to(ROOT)
    if place.suffix == ".md" or place.parts[:2] == ("docs", "images"):
        return place
    return Path("source") / place / "index.md" if path.is_dir() else Path("source") / f"{place}.md"


def _shown(path: Path) -> str:
    """The page of a file or folder of the code; the search leaves it out."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return head + "\n".join(f"- `{p.name}`" for p in sorted(path.iterdir()) if not p.name.startswith(("__", ".")))
    text = path.read_text(encoding="utf-8")
    return f"{head}````{LANGUAGES.get(path.suffix, '')}\n{text}\n````\n"


def stage(folder: Path) -> None:
    """Copy the documents to `folder` in the layout of the repository, their links to code led to pages of it."""
    code: set[Path] = set()

    def moved(page: Path, link: str) -> str:
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve()
        if not target or "://" in link or not path.exists() or not path.is_relative_to(ROOT):
            return link
        place = _page(path)
        if place.parts[0] == "source":
            code.add(path)
        up = "../" * (len(page.relative_to(ROOT).parts) - 1)
        return f"{up}{place.as_posix()}" + (f"#{anchor}" if anchor and place.parts[0] != "source" else "")

    for page in pages():
        parts = FENCED.split(page.read_text(encoding="utf-8"))
        text = "".join(
            RUN.sub(r"\1", part) if i % 2 else LINK.sub(lambda m, page=page: moved(page, m[1]), part)
            for i, part in enumerate(parts)
        )
        _write(folder / page.relative_to(ROOT), text)
    for path in sorted(code):
        _write(folder / _page(path), _shown(path))
    shutil.copytree(ROOT / "docs/images", folder / "docs/images")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def build(out: Path) -> None:
    """Build the site into `out`. Raises RuntimeError with what Zensical says where it fails."""
    lines = ['  { "Start" = "README.md" },']
    for title, items in nav():
        inner = ", ".join(f'{{ "{t[0].upper()}{t[1:]}" = "{page}" }}' for t, page in items)
        lines.append(f'  {{ "{title}" = [{inner}] }},')
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        stage(root / "pages")
        (root / "zensical.toml").write_text(CONFIG.format(nav="\n".join(lines)), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode or not (root / "site/index.html").exists():
            raise RuntimeError(f"zensical could not build the site:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(root / "site", out)


class _Page:
    """The links of a page of the site, each once, and the places that a link can lead to."""

    def __init__(self, path: Path) -> None:
        tree = html.document_fromstring(path.read_bytes())
        self.links = dict.fromkeys(map(str, tree.xpath("//@href | //@src")))
        self.ids = set(map(str, tree.xpath("//@id | //@name")))


def broken(site: Path) -> Iterator[str]:
    """ "page: link" of every link inside the site that leads to no file, or to no place on its page."""
    pages = {path: _Page(path) for path in sorted(site.resolve().rglob("*.html"))}

    @cache
    def target(folder: Path, link: str) -> Path | None:
        """The file that a link in a page of this folder leads to; None if there is none."""
        at = (folder / unquote(link)).resolve()
        at = at / "index.html" if at.is_dir() else at
        return at if at.exists() else None

    for path, page in pages.items():
        if path.name == "404.html":  # served from anywhere, so its links begin at the root
            continue
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            at = target(path.parent, url.path) if url.path else path
            if at is None or (at in pages and url.fragment and unquote(url.fragment) not in pages[at].ids):
                yield f"{path.relative_to(site.resolve())}: {link}"


def main(out: Path = OUT) -> int:
    build(out)
    wrong = list(broken(out))
    for line in wrong:
        print(f"broken link: {line}", file=sys.stderr)
    print(f"{sum(1 for _ in out.rglob('*.html'))} pages: {out / 'index.html'}, {len(wrong)} broken links")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
