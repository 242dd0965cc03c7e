"""A campaign on disk: what was acknowledged stays, nothing is changed, and links and names tell nothing."""

import base64
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato import images
from sfumato.annotate import CampaignConfig, Pair, Store, create
from sfumato.errors import ArtefactError, DataError, ImageError

Begin = Callable[..., Store]


def first(store: Store, annotator: int = 1) -> str:
    """The question that an annotator is shown."""
    return store.upcoming(annotator, count=1)[0].key


def keys(store: Store, annotator: int = 1) -> list[str]:
    return [question.key for question in store.upcoming(annotator, count=1000)]


def test_every_link_is_a_secret_of_192_bits(begin: Begin):
    store = begin(annotators=5)
    tokens = [one.token for one in store.annotators()] + [store.token]
    assert len(set(tokens)) == 6
    assert {len(base64.urlsafe_b64decode(token)) for token in tokens if token} == {24}


def test_the_file_is_readable_by_its_owner_alone(begin: Begin):
    assert stat.S_IMODE(begin().path.stat().st_mode) == 0o600


def test_what_is_acknowledged_is_on_the_disk(begin: Begin):
    store = begin()
    assert store._row("pragma journal_mode") == ("wal",)
    assert store._row("pragma synchronous") == (2,)  # FULL


def test_a_campaign_goes_on_at_the_first_question_without_an_answer(begin: Begin):
    store = begin()
    asked = keys(store)
    for key in asked[:3]:
        store.answer(1, key, "cat", ticket=key)
    with Store(store.path) as again:
        assert keys(again) == asked[3:]
        assert [one.answered for one in again.annotators()] == [3, 0, 0, 0, 0]


def test_annotators_see_all_items_each_in_an_order_of_his_own(begin: Begin):
    store = begin()
    assert set(keys(store, 1)) == set(keys(store, 2))
    assert keys(store, 1) != keys(store, 2)


def test_an_undo_is_a_row_of_its_own_and_brings_the_question_back(begin: Begin):
    store = begin()
    key = first(store)
    store.answer(1, key, "dog", ticket="a")
    store.undo(1, ticket="b")
    store.answer(1, key, "emu", ticket="c")
    assert [given.answer for given in store.history()] == ["dog", None, "emu"]
    assert list(store.answers()[1].values()) == ["emu"]


def test_undone_twice_two_questions_come_back(begin: Begin):
    store = begin()
    asked = keys(store)
    for key in asked[:3]:
        store.answer(1, key, "cat", ticket=key)
    store.undo(1, ticket="one")
    store.undo(1, ticket="two")
    assert keys(store) == asked[1:]


def test_an_undo_with_nothing_to_undo_changes_nothing(begin: Begin):
    store = begin()
    store.answer(2, first(store, 2), "cat", ticket="a")
    store.undo(1, ticket="b")
    assert len(store.history()) == 1


def test_what_is_sent_twice_is_kept_once(begin: Begin):
    store = begin()
    asked = keys(store)
    for key in asked[:2]:
        store.answer(1, key, "dog", ticket=key)
        store.answer(1, key, "dog", ticket=key)
    for _ in range(2):
        store.undo(1, ticket="undo")
    assert [given.answer for given in store.history()] == ["dog", "dog", None]
    assert keys(store) == asked[1:]


def test_of_two_answers_to_one_question_both_are_kept_and_the_last_counts(begin: Begin):
    store = begin()
    key = first(store)
    assert store.answer(1, key, "dog", ticket="one window") is None
    assert store.answer(1, key, "cannot tell", ticket="another") == "dog"
    assert [given.answer for given in store.history()] == ["dog", "cannot tell"]
    assert list(store.answers()[1].values()) == ["cannot tell"]
    assert store.annotators()[0].answered == 1


def test_an_answer_that_arrives_again_is_told_again_what_it_replaced(begin: Begin):
    store = begin()
    key = first(store)
    store.answer(1, key, "dog", ticket="one window")
    assert [store.answer(1, key, "emu", ticket="another") for _ in range(2)] == ["dog", "dog"]


def test_answers_are_never_changed_or_deleted(begin: Begin):
    store = begin()
    store.answer(1, first(store), "dog", ticket="a")
    with closing(sqlite3.connect(store.path)) as database:
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            database.execute("update answers set answer = 'cat'")
        with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
            database.execute("delete from answers")


def test_many_windows_at_once_lose_nothing(begin: Begin):
    store = begin(annotators=4)
    with Store(store.path) as other, ThreadPoolExecutor(8) as pool:
        windows = [(annotator, opened) for annotator in range(1, 5) for opened in (store, other)]
        asked = {annotator: keys(store, annotator) for annotator in range(1, 5)}

        def go(annotator: int, opened: Store) -> None:
            for key in asked[annotator]:
                opened.answer(annotator, key, "cat", ticket=f"{id(opened)} {key}")

        list(pool.map(lambda window: go(*window), windows))
    assert len(store.history()) == 4 * 2 * 12
    assert [one.answered for one in store.annotators()] == [12] * 4


def test_a_question_shows_the_reconstruction_and_not_the_original_where_its_class_is_chosen(
    begin: Begin, pairs: list[Pair]
):
    store = begin()
    (shown,) = store.read_pngs(1)
    assert images.read(shown).equal(images.read(pairs[0].reconstruction))
    assert [len(question.images) for question in store.upcoming(1, count=12)] == [1] * 12


def test_side_by_side_the_original_comes_first(begin: Begin, pairs: list[Pair]):
    shown = [images.read(png) for png in begin("same").read_pngs(1)]
    assert shown[0].equal(images.read(pairs[0].original))
    assert shown[1].equal(images.read(pairs[0].reconstruction))


def test_the_same_image_has_another_name_in_every_item(begin: Begin):
    # 12 pairs and 3 decoys: an image of a decoy is in its own pair, too.
    names = [name for question in begin("same").upcoming(1, count=100) for name in question.images]
    assert len(set(names)) == len(names) == 30
    assert {len(base64.urlsafe_b64decode(name)) for name in names} == {24}


def test_the_same_image_is_stored_once(begin: Begin, pairs: list[Pair]):
    store = begin("same", of=[*pairs, *pairs])
    assert store._row("select count(*) from images") == (24,)


def test_items_come_back_as_they_were_made(begin: Begin, pairs: list[Pair]):
    found = begin("same", decoys=0.2).items()
    assert [item.pair for item in found.values()][:12] == pairs
    assert [item.decoy for item in found.values()] == [False] * 12 + [True] * 3


def test_an_answer_that_is_not_offered_is_refused(begin: Begin):
    store = begin("same")
    with pytest.raises(
        DataError, match="'cat' is not an answer here: choose one of same, different, cannot tell"
    ):
        store.answer(1, first(store), "cat", ticket="a")
    with pytest.raises(DataError, match="no such question"):
        store.answer(1, "other", "same", ticket="a")
    assert store.history() == []


def test_proxies_take_the_place_of_people_who_have_not_begun(begin: Begin):
    store = begin()
    link = store.annotators()[0].token
    store.add_proxies({"big": dict.fromkeys(store.items(), "cat")})
    assert (store.kind, [one.name for one in store.annotators()]) == ("proxy", ["big"])
    assert store.annotator(str(link)) is None
    store.add_proxies({"small": dict.fromkeys(store.items(), "dog")})
    assert [one.answered for one in store.annotators()] == [12, 12]


def test_people_and_proxies_never_mix(begin: Begin):
    store = begin()
    store.answer(1, first(store), "cat", ticket="a")
    store.undo(1, ticket="b")
    with pytest.raises(
        DataError, match=r"people have answered here \(2 times\), and proxies never share a campaign"
    ):
        store.add_proxies({"big": dict.fromkeys(store.items(), "cat")})
    assert (store.kind, len(store.annotators()), len(store.history())) == ("people", 5, 2)


def test_a_file_itself_refuses_a_proxy_among_people(begin: Begin):
    with (
        closing(sqlite3.connect(begin().path)) as database,
        pytest.raises(sqlite3.IntegrityError, match="never share a campaign"),
    ):
        database.execute("insert into annotators (name, kind) values ('big', 'proxy')")


def test_two_proxies_of_one_name_are_refused(begin: Begin):
    store = begin()
    answers = dict.fromkeys(store.items(), "cat")
    store.add_proxies({"big": answers})
    with pytest.raises(DataError, match="a proxy called 'big' has answered: give another name"):
        store.add_proxies({"small": answers, "big": answers})
    assert [one.name for one in store.annotators()] == ["big"]


def test_a_campaign_is_never_written_over(begin: Begin, pairs: list[Pair]):
    path = begin().path
    before = path.read_bytes()
    with pytest.raises(DataError, match="exists already, maybe with answers: name a new file"):
        create(path, pairs, CampaignConfig(task="same"))
    assert path.read_bytes() == before


def test_a_campaign_that_cannot_be_made_leaves_nothing(tmp_path: Path, pairs: list[Pair]):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"broken\.png"):
        create(
            tmp_path / "new" / "c.db",
            [*pairs, replace(pairs[0], reconstruction=broken)],
            CampaignConfig(task="choose"),
        )
    assert list((tmp_path / "new").iterdir()) == []


def test_a_campaign_that_is_not_there_is_not_begun_by_opening_it(tmp_path: Path):
    with pytest.raises(ArtefactError, match="no such file: create one with `sfumato annotate new`"):
        Store(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_damaged_campaign_is_refused(begin: Begin):
    store = begin()
    store.close()
    whole = store.path.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        whole[:4096] + b"\xff" * 8192 + whole[4096 + 8192 :],
        b"not a database at all" * 500,
    ):
        store.path.write_bytes(damaged)
        with pytest.raises(ArtefactError, match="restore it from a copy"):
            Store(store.path)


def test_another_database_is_no_campaign(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("create table t (x)")
    with pytest.raises(ArtefactError, match="not a campaign: name a file of"):
        Store(tmp_path / "other.db")


def test_a_campaign_of_a_later_version_is_refused(begin: Begin):
    store = begin()
    store.close()
    with closing(sqlite3.connect(store.path)) as database:
        database.execute("pragma user_version = 9")
    with pytest.raises(ArtefactError, match="a campaign of version 9, not 1: upgrade sfumato"):
        Store(store.path)
