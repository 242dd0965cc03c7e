"""One string names any data source, and a mistake in it is answered with the nearest right one."""

from pathlib import Path

import pytest
from layouts import photograph

from sfumato.data import folder, glyphs, load, table
from sfumato.errors import DataError, SfumatoError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder per class, and a table of the same files."""
    for level, name in enumerate(["anna/1", "anna/2", "bela/1"]):
        photograph(tmp_path / "photos" / f"{name}.png", level, size=(6, 6))
    (tmp_path / "photos" / "table.csv").write_text("file,who\nanna/1.png,anna\nbela/1.png,bela\n")
    return tmp_path / "photos"


def test_a_world_is_named_by_its_name_and_files_by_their_kind_and_place(photos: Path):
    assert load("glyphs", classes=6, drawers=2).digest == glyphs(classes=6, drawers=2).digest
    assert load("faces", identities=6, images_per_identity=1, headwear=6, size=16).name == "faces"
    read, path = folder(photos, size=8).digest, photos / "table.csv"
    settings = {"root": photos, "size": 8}
    assert load(f"folder:{photos}", size=8).digest == load("folder", **settings).digest == read
    assert settings == {"root": photos, "size": 8}
    assert load(f"table:{path}", size=8, channels=1).digest == table(path, size=8, channels=1).digest
    moved = photos.rename(photos.with_name("my photos: best of"))
    assert load(f"folder:{moved}", size=8).digest == read


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("face", {}, "no data source is called 'face': did you mean 'faces'"),
        ("photos/", {}, "no data source is called 'photos/': .*Known: caltech101, celeba, .*, table"),
        ("", {}, "no data source is called ''"),
        ("/", {}, "/: the kind of source is missing: write folder:/"),
        ("faces:photos", {}, "faces is drawn, not read: write faces, without a path"),
        ("folder", {}, "folder: needs one path: write folder:PATH"),
        ("folder:", {}, "needs one path: write folder:PATH"),
        ("table", {}, "table: needs one path: write table:PATH"),
        ("glyphs", {"clases": 3}, "glyphs: no setting 'clases': did you mean 'classes'"),
        ("folder:x", {"rotations": True}, "folder: no setting 'rotations': .*Known: channels, root, size"),
        ("folder:x", {"skip_unreadable": True}, "folder: no setting 'skip_unreadable'"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(source: str, settings: dict, message: str):
    with pytest.raises(DataError, match=message):
        load(source, **settings)


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        ("glyphs", {"size": "large"}),
        ("glyphs", {"classes": 2.5}),
        ("faces", {"identities": "many"}),
        ("folder:{photos}", {"size": "large"}),
        ("folder:{photos}", {"size": 0}),
        ("folder:{photos}", {"size": -4}),
        ("folder:{photos}", {"channels": 2}),
        ("folder:{photos}", {"root": "photos"}),  # a place named twice
    ],
)
def test_a_setting_of_the_wrong_kind_or_size_is_named(photos: Path, source: str, settings: dict):
    """Study files and the command line hand these values on as the user wrote them."""
    with pytest.raises(SfumatoError, match=next(iter(settings))):
        load(source.format(photos=photos), **settings)


def test_files_that_cannot_be_read_stop_or_are_left_out_counted_and_named(photos: Path):
    for name in "cdefg":
        (photos / "anna" / f"{name}.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"anna/c\.jpg: .*: remove the file, or read without strict"):
        load(f"folder:{photos}", size=8)
    data = load(f"folder:{photos}", size=8, strict=False)
    assert len(data) == 3
    assert len(data.skipped) == 5
    assert data.describe_left_out().startswith("left out: 5 of 8 files, which cannot be read: ")
    assert "anna/c.jpg: " in data.describe_left_out()
    assert data.describe_left_out().endswith("; and 2 more; and 1 (no images by their first bytes)")
    assert load("glyphs", classes=6, drawers=2, strict=False).describe_left_out() == ""


def test_a_path_without_its_kind_is_answered_with_what_to_write(photos: Path):
    with pytest.raises(DataError, match=f"{photos}: the kind of source is missing: write folder:{photos}"):
        load(str(photos))
    with pytest.raises(DataError, match=r"write table:.*table\.csv"):
        load(str(photos / "table.csv"))
    with pytest.raises(DataError, match=r"gone\.csv: the kind of source is missing: write table:gone\.csv"):
        load("gone.csv")
    with pytest.raises(DataError, match=f"{photos}: is a folder: write folder:{photos}"):
        load(f"table:{photos}")


def test_a_folder_of_a_split_beside_folders_of_classes_is_refused(photos: Path):
    (photos / "train" / "anna").mkdir(parents=True)
    (photos / "anna" / "1.png").rename(photos / "train" / "anna" / "1.png")
    with pytest.raises(DataError, match="train/ holds a sub-folder per class, as a split does, and anna/"):
        load(f"folder:{photos}")
