"""The catalogue of sources, and `sfumato data list`, which prints it."""

import sys

import pytest

from sfumato.cli import main
from sfumato.data import _ON_DISK, WORLDS
from sfumato.data.readers.catalogue import Source, sources


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", ["sfumato", "data", "list"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    return capsys.readouterr().out


def test_every_registered_source_is_in_the_catalogue_and_every_data_set_says_its_address_and_terms():
    assert set(sources()) == {*WORLDS, *_ON_DISK}
    for name in set(sources()) - {"faces", "glyphs", "folder", "table", "parquet", "hats"}:
        assert sources()[name].url.startswith("http")
        assert sources()[name].terms


@pytest.mark.parametrize("source", sources().values(), ids=list(sources()))
def test_what_to_write_is_the_name_and_for_files_their_place(source: Source):
    kind, _, place = source.write.partition(":")
    assert kind == source.name
    assert bool(place) == bool(source.layout) == (source.name in _ON_DISK)


@pytest.mark.parametrize("source", sources().values(), ids=list(sources()))
def test_the_list_says_all_that_the_catalogue_has(listed: str, source: Source):
    lines = listed.splitlines()
    start = lines.index(f"{source.name}: write {source.write}")
    said = "\n".join(lines[start : start + 4 + len(source.layout)])
    assert all(fact in said for fact in (source.holds, source.url, source.terms, *source.layout))
