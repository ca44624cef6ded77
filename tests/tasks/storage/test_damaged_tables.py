"""A table that is damaged, or of another version, is a sentence that names the file."""

import pyarrow.parquet
import pytest

from synth.types import Quarantined, UserError
from tasks.results import promote
from tasks.storage import tables


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "artifacts" / "evaluate" / "scores.parquet"
    tables.write(path, [Quarantined(stage="kb", id="e", reason="empty", evidence="")], Quarantined)
    return path


def test_rows_of_another_version(path):
    table = pyarrow.parquet.read_table(path)
    at = table.column_names.index("schema_version")
    pyarrow.parquet.write_table(table.set_column(at, "schema_version", pyarrow.array([None], pyarrow.int64())), path)
    with pytest.raises(UserError, match=r"scores.parquet(:| was read with).*Quarantined.*"):
        tables.read(path, Quarantined)


def test_a_table_that_ends_early_is_not_promoted_by(path):
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"scores.parquet is not a Parquet file .*: re-run the stage that writes it"):
        promote.held_out_scores(path.parents[2], "rl")
