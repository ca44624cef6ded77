"""Every YAML file that ships reads the same with and without libyaml: PyYAML comes without it on some platforms, and its
own parser refuses a few texts that libyaml accepts (a plain text within braces that ends in a question mark)."""

from pathlib import Path

import pytest
import yaml

ROOT = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())
FILES = sorted(
    [*ROOT.glob("*.yaml"), *(f for folder in ("flows", "benchmarks", "data") for f in (ROOT / folder).rglob("*.yaml"))]
)


def test_the_recipes_are_among_the_files():
    assert len([f for f in FILES if "recipes" in f.parts]) > 200


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_the_python_parser_and_libyaml_agree(file):
    text = file.read_text(encoding="utf-8")
    assert list(yaml.load_all(text, yaml.SafeLoader)) == list(
        yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    )
