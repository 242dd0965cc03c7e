"""A campaign on disk: pages that tell nothing, and files of answers that are taken whole or refused."""

import base64
import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import content_of, saved

from sfumato import images
from sfumato.annotate import Campaign, CampaignConfig, Pair, create
from sfumato.errors import ArtefactError, DataError, ImageError

Begin = Callable[..., Campaign]


def test_a_page_shows_each_item_once_in_an_order_of_its_annotator(begin: Begin):
    campaign = begin("same", annotators=3)
    orders = [[one["item"] for one in content_of(campaign, number)["items"]] for number in (1, 2, 3)]
    assert {frozenset(each) for each in orders} == {frozenset(item.key for item in campaign.items.values())}
    assert len({tuple(each) for each in orders}) == 3


@pytest.mark.parametrize(("task", "place"), [("choose", [1]), ("same", [0, 1])])
def test_a_page_shows_the_pixels_and_nothing_else_of_its_images(begin, pairs, task, place):
    campaign = begin(task, decoys=0)
    by_key = {one["item"]: one["images"] for one in content_of(campaign)["items"]}
    for number, pair in enumerate(pairs, 1):
        shown = [base64.b64decode(each.partition(",")[2]) for each in by_key[campaign.items[number].key]]
        files = [(pair.original, pair.reconstruction)[each] for each in place]
        assert shown == [images.encode(images.read(file)) for file in files]
        assert shown == campaign.read_pngs(number)


def test_nothing_that_a_page_knows_tells_what_is_right(begin: Begin):
    content = content_of(begin("same"))
    assert set(content) == {"campaign", "annotator", "choose", "cannotTell", "items"}
    shapes = {(tuple(one), tuple(one["options"]), len(one["item"])) for one in content["items"]}
    assert shapes == {(("item", "images", "options"), ("same", "different"), 16)}  # decoys as the others
    words = json.dumps([content["annotator"], content["cannotTell"]])
    assert re.search(r"secret|\.png|lenet|resnet|zoo|decoy|model", words) is None


def test_a_page_loads_nothing_and_runs_its_own_script_alone(begin: Begin):
    page = (begin().path / "annotator-1.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src &#x27;none&#x27;; img-src data:; style-src &#x27;sha256-")
    assert "unsafe" not in policy
    assert re.findall(r"https?://|src=|style=|\son\w+=", page) == []


def test_names_that_look_like_a_page_are_only_text(begin: Begin, pairs: list[Pair]):
    names = ["</script><script>alert(1)</script>", "{{script}}"]
    campaign = begin(of=[replace(one, true_class=names[n % 2]) for n, one in enumerate(pairs)])
    assert content_of(campaign)["items"][0]["options"] == sorted(names)
    assert "alert(1)</script>" not in (campaign.path / "annotator-1.html").read_text()


def test_a_campaign_is_its_owners_alone_never_written_over_and_made_whole_or_not_at_all(tmp_path, pairs):
    path, config = tmp_path / "new" / "campaign", CampaignConfig(task="same")
    create(path, pairs, config)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with pytest.raises(DataError, match="exists already, maybe with answers: name a new folder"):
        create(path, pairs, config)
    pairs[3].original.write_bytes(b"no image")
    with pytest.raises(ImageError):
        create(tmp_path / "campaign", pairs, config)
    assert {each.name for each in tmp_path.iterdir()} == {"secret", "new"}


def test_answers_come_back_as_they_were_saved(begin: Begin):
    campaign = begin(annotators=2)
    saved(campaign, 2, {3: "cat", 1: "cannot tell"})
    (campaign.path / "answers" / ".DS_Store").write_bytes(b"of a file manager")
    said = Campaign(campaign.path).answers()
    assert {name: {n: one.answer for n, one in mine.items()} for name, mine in said.items()} == {
        "annotator 1": {},
        "annotator 2": {3: "cat", 1: "cannot tell"},
    }


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("b.json", "a.json")])
def test_of_several_files_of_one_browser_the_last_saved_counts(begin: Begin, names: tuple[str, str]):
    campaign = begin()
    saved(campaign, 1, {1: "cat", 2: "dog"}, {"saved": 1.0}, name=names[0])
    saved(campaign, 1, {1: "dog"}, {"saved": 2.0}, name=names[1])
    assert [one.answer for one in Campaign(campaign.path).answers()["annotator 1"].values()] == ["dog"]


def test_one_page_given_to_two_people_and_people_among_proxies_are_refused(begin: Begin):
    campaign = begin()
    saved(campaign, 1, {1: "cat"})
    saved(campaign, 1, {1: "dog"}, {"browser": "another"}, name="other.json")
    with pytest.raises(DataError, match=r"annotator-1.json and .*other.json: annotator 1 in two browsers"):
        Campaign(campaign.path).answers()
    campaign = begin()
    campaign.add_proxies({"big": {1: "cat"}})
    saved(campaign, 1, {1: "cat"})
    with pytest.raises(DataError, match="people and proxies never share a campaign: move one kind out"):
        Campaign(campaign.path).answers()


NO_ANSWERS = [b"", b"<html>", b"[]", b"\xff", b"[" * 5000, b'{"campaign": "\\ud800"}']


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"campaign": "other"}, "answers of another campaign: move it into that one's folder"),
        ({"annotator": "annotator 6"}, "'annotator 6' is not of this campaign: ask its sender to save it"),
        ({"annotator": "annotator 01"}, "'annotator 01' is not of this campaign"),
        ({"answers": [{"item": "x", "answer": "cat", "time": 1.0}]}, "item 'x' is unknown: ask its sender"),
        ({"answers": [{"item": "x", "answer": "cat"}]}, "not a file of answers .*answers.0.time: Field req"),
        ({"saved": float("nan")}, "not a file of answers"),
        ({"saved": "1"}, "saved: Input should be a valid number"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        *((content, "not a file of answers as a page saves it") for content in NO_ANSWERS),
    ],
)
def test_a_file_that_is_none_of_this_campaigns_is_named_with_the_cure(begin: Begin, changed, message: str):
    campaign = begin()
    path = saved(campaign, 1, {1: "cat"}, {} if isinstance(changed, bytes) else changed)
    if isinstance(changed, bytes):
        path.write_bytes(changed)
    with pytest.raises(DataError, match=f"{re.escape(str(path))}: .*{message}"):
        Campaign(campaign.path).answers()


def test_an_answer_that_its_item_does_not_offer_or_gives_twice_is_refused(begin: Begin):
    campaign = begin()
    saved(campaign, 1, {1: "yak"})
    with pytest.raises(DataError, match="'yak' is not among cat, dog, emu, fox, gnu, hen, cannot tell: ask"):
        Campaign(campaign.path).answers()
    twice = [{"item": campaign.items[1].key, "answer": answer, "time": 1.0} for answer in ("cat", "dog")]
    saved(campaign, 1, {}, {"answers": twice})
    with pytest.raises(DataError, match="is there twice: ask its sender to save it again"):
        Campaign(campaign.path).answers()


def test_what_is_no_campaign_is_refused(tmp_path: Path, begin: Begin):
    with pytest.raises(ArtefactError, match="not a campaign: name a folder of `sfumato annotate new`"):
        Campaign(tmp_path)
    path = begin().path
    (path / "campaign.json").write_text('{"version": "sfumato campaign 2"}')
    with pytest.raises(ArtefactError, match=r"campaign\.json: damaged, or of another version .*: restore it"):
        Campaign(path)
