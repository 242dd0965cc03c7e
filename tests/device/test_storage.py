"""Places: a folder and a URL offer the same, nothing of somebody else is replaced, and no password is told.

What stands for an object store is fsspec's memory file system, which like one has no folders and puts objects
whole; `local://` stands for file systems that show half-written files. A real object store is not here.
"""

import errno
import os
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

from sfumato import images
from sfumato.base.files import PART
from sfumato.device.storage import storage_of, without_password
from sfumato.errors import ConfigError, ImageError, MissingExtraError


@pytest.fixture(params=["folder", "memory", "local"])
def there(request, tmp_path):
    """A place that exists, with one file in it."""
    if request.param == "memory":
        found = storage_of(f"memory:/{tmp_path}/there")
    else:
        found = storage_of(tmp_path / "there" if request.param == "folder" else f"local://{tmp_path}/there")
    found.make()
    put(found, "a/b.png", b"first", replace=False)
    return found


def put(at, name: str, content: bytes, *, replace: bool) -> None:
    with at.file(name, replace=replace) as path:
        path.write_bytes(content)


def content(at, name: str) -> bytes:
    with at.stream(name) as opened:
        return opened.read(1000)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_entries_are_those_of_one_folder_by_their_stems(there):
    for name in ("c.tar", "c.png", "b.png", "b!.png"):
        put(there, name, b"x", replace=False)
    found = {base: look().kind for base, look in there.entries("")}
    assert list(found) == ["a", "b.png", "b!.png", "c.png", "c.tar"]
    assert [found.pop("a"), *set(found.values())] == ["folder", "file"]
    assert (there.exists(), there.is_folder(), there.is_empty()) == (True, True, False)
    assert (there.size("a/b.png"), there.size("a/c.png")) == (5, None)
    assert [base for base, _ in there.entries("a")] == ["b.png"]
    with pytest.raises(FileNotFoundError):
        there.entries("gone")


def test_the_same_content_is_left_and_another_is_replaced_on_demand_only(there):
    before = there.look("a/b.png")
    put(there, "a/b.png", b"first", replace=False)
    assert there.look("a/b.png") == before
    with pytest.raises(FileExistsError):
        put(there, "a/b.png", b"other", replace=False)
    assert content(there, "a/b.png") == b"first"
    put(there, "a/b.png", b"other", replace=True)
    assert content(there, "a/b.png") == b"other"
    after = there.look("a/b.png")
    assert (before.kind, before.size, after.size, before.stamp == after.stamp) == ("file", 5, 5, False)
    with pytest.raises(ZeroDivisionError), there.file("a/new.png", replace=False) as path:
        path.write_bytes(bytes(5 // path.write_bytes(b"")))
    with pytest.raises(IsADirectoryError):
        put(there, "a", b"x", replace=True)
    assert [base for base, _ in there.entries("a")] == ["b.png"]


def test_what_is_deleted_is_gone_also_twice_and_nothing_else_is(there):
    put(there, "a/[b]*.png", b"x", replace=False)
    for _ in range(2):
        there.delete("a/[b]*.png")
    assert [base for base, _ in there.entries("a")] == ["b.png"]


def test_a_file_that_is_gone_or_longer_than_allowed_is_no_image(there, monkeypatch):
    monkeypatch.setattr("sfumato.images.reading.MAX_BYTES", 4)
    for name, cause in (("gone.png", "cannot be read"), ("a/b.png", "more bytes than allowed")):
        with pytest.raises(ImageError) as raised:
            images.read_array(there.read(name))
        assert raised.value.cause == cause


def test_halves_that_a_kill_left_are_removed_where_they_can_be(tmp_path):
    for there in (storage_of(tmp_path), storage_of(f"local://{tmp_path}")):
        for folder in (tmp_path, tmp_path / "a"):
            folder.mkdir(exist_ok=True)
            (folder / PART.replace("*", "0123456789abcdef")).write_bytes(b"half")
            (folder / "whole.png").write_bytes(b"whole")
        there.tidy()
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "whole.png", "whole.png"]


def test_nothing_of_a_failed_write_is_left_at_a_url_that_shows_halves(tmp_path, monkeypatch):
    there = storage_of(f"local://{tmp_path}/there")
    there.make()

    def full(files, written, path, **_):
        Path(path).write_bytes(b"f")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(LocalFileSystem, "put_file", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        put(there, "a.png", b"first", replace=False)
    assert raised.value.errno == errno.ENOSPC
    assert files_in(tmp_path / "there") == {}


def test_a_file_is_replaced_also_where_nothing_is_renamed_over_another(tmp_path, monkeypatch):
    there = storage_of(f"local://{tmp_path}/there")
    put(there, "a.png", b"first", replace=False)

    def careful(files, path, other, **_):
        if Path(other).exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        Path(path).rename(other)

    monkeypatch.setattr(LocalFileSystem, "mv", careful)
    put(there, "a.png", b"other", replace=True)
    assert files_in(tmp_path / "there") == {"a.png": b"other"}


def test_links_at_a_url_are_followed_to_files_and_told_from_folders(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "link.png").symlink_to("a.png")
    (tmp_path / "linked").symlink_to("real")
    for there in (storage_of(tmp_path), storage_of(f"local://{tmp_path}")):
        assert {base: look().kind for base, look in there.entries("")} == {
            "a.png": "file",
            "link.png": "file",
            "linked": "link to a folder",
            "real": "folder",
        }


def test_a_url_of_a_local_file_is_that_folder_and_what_lies_above_and_below_a_url_is_a_url(tmp_path):
    assert storage_of(f"file://{tmp_path}/a") == storage_of(tmp_path / "a")
    assert storage_of(f"file://{tmp_path}/a/").identity == storage_of(tmp_path / "a").identity
    assert str(storage_of("s3://bucket/a/t.tar").parent) == "s3://bucket/a"
    assert str(storage_of("memory://t.tar").parent) == "memory://"
    assert storage_of("memory://").at("a/b") == "memory://a/b"
    assert storage_of("s3://bucket/a/").at("b") == storage_of("s3://bucket/a").at("b") == "s3://bucket/a/b"


def test_a_place_within_another_is_known_by_its_name(tmp_path):
    assert storage_of("s3://b/a/c").within(storage_of("s3://b/a/"))
    assert not storage_of("s3://b/ab").within(storage_of("s3://b/a"))
    assert storage_of("sftp://anna:pw@host/a").within(storage_of("sftp://host/a"))
    assert not storage_of("s3://b/a").within(storage_of("/"))
    (tmp_path / "link").symlink_to(tmp_path)
    assert storage_of(tmp_path / "link" / "a").within(storage_of(tmp_path))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://anna:secret@host:22/a", "sftp://host:22/a"),
        ("ftp://anna:se@cret@host/a", "ftp://host/a"),
        ("SFTP://anna@host/a", "sftp://anna@host/a"),
        *[("abfs://box@account.dfs.core.windows.net/a",) * 2],
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)
def test_a_url_is_shown_without_user_and_password(url, shown):
    assert without_password(url) == str(storage_of(url)) == shown
    assert storage_of(url).identity == shown.encode()
    assert "secret" not in repr(storage_of(url))


def test_a_password_with_a_slash_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="a password in a URL has a / in it: write %2F") as raised:
        storage_of("s3://KEY:se/cret@bucket/a")
    assert "cret" not in str(raised.value)


def test_errors_of_a_file_system_tell_no_password(monkeypatch):
    there = storage_of("memory://anna:s%65cret@host/a")

    def refuse(files, path, **_):
        raise RuntimeError(f"530 login of anna with secret (s%65cret) at {there.url} failed")

    monkeypatch.setattr(MemoryFileSystem, "info", refuse)
    with pytest.raises(OSError, match="RuntimeError: 530 login") as raised:
        there.exists()
    said = f"{raised.value} {raised.value.__cause__} {raised.value.filename}"
    assert not [word for word in ("anna", "secret", "s%65cret") if word in said]
    assert raised.value.__suppress_context__


def test_a_url_that_nothing_opens_or_whose_library_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(known_implementations, "gone", {"class": "gone.Files", "err": "Install gone for it"})
    with pytest.raises(MissingExtraError, match="gone://host/b: Install gone for it"):
        storage_of("gone://anna:secret@host/b").exists()
    with pytest.raises(ConfigError, match="nosuch://: not a URL that fsspec opens here"):
        storage_of("nosuch://a/b").exists()
