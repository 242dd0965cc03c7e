"""studies/masks.py: its files are studies, and what they find has the names of the records that are kept."""

from pathlib import Path

import masks
import pytest
from rows import RESULTS, Rows

from sfumato.study import grid

STUDIES = Path(masks.__file__).parent
FILES = [
    file for folder in ("masks", "mask-tables", "masks-against") for file in (STUDIES / folder).glob("*.yaml")
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_records_that_are_kept_have_all_settings_of_a_file(file: Path):
    config, folder = grid.load(file), file.parent.name
    rows = Rows(RESULTS / f"{folder}.jsonl")
    records = [rows[row] for row in rows if row.rpartition("-")[0] == config.name]
    named = {masks.name_of(spec, tables=folder == "mask-tables") for spec in config.specs}
    assert len(named) == len(config.specs)
    assert "unlearned" in records[0] or named <= {name for record in records for name in record["settings"]}
