"""Artifacts that a test made by hand, sealed as a stage would leave them."""

from pathlib import Path

from tasks.storage import commit


def seal(root: Path) -> None:
    """Write the manifest of every folder below artifacts/ (anew, where the test has changed something since)."""
    for folder in sorted((root / "artifacts").iterdir()):
        commit.seal(folder)
