"""The page's other side: what it may know, what it keeps, and what nobody is told."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from sfumato import images
from sfumato.annotate import Store
from sfumato.annotate.app import create

Begin = Callable[..., Store]


class Site:
    """A campaign and what its application answers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.app: FastAPI = create(store.path)
        self.link = f"/a/{store.annotators()[0].token}"
        self.status = f"/status/{store.token}"

    def ask(self, path: str, sent: Any = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await (client.get(path) if sent is None else client.post(path, json=sent))

        return asyncio.run(ask())

    def next(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"{self.link}/next").json()
        return found

    def answer(self, item: str, answer: str, ticket: str = "a ticket") -> httpx.Response:
        return self.ask(f"{self.link}/answer", {"item": item, "answer": answer, "ticket": ticket})


@pytest.fixture
def choose(begin: Begin) -> Site:
    return Site(begin())


@pytest.fixture
def same(begin: Begin) -> Site:
    return Site(begin("same"))


def test_a_page_is_given_the_first_questions_and_how_far_it_is(choose: Site):
    found = choose.next()
    assert (found["answered"], found["total"], len(found["items"])) == (0, 12, 6)
    assert [one["item"] for one in found["items"]] == [q.key for q in choose.store.upcoming(1, count=6)]


def test_an_answer_is_kept_and_the_next_question_comes_back(choose: Site):
    first, second = choose.next()["items"][:2]
    reply = choose.answer(first["item"], "cat").json()
    assert (reply["answered"], reply["before"], reply["items"][0]) == (1, None, second)
    assert [given.answer for given in choose.store.history()] == ["cat"]


def test_an_undo_brings_the_question_back(choose: Site):
    first = choose.next()["items"][0]
    choose.answer(first["item"], "cat")
    reply = choose.ask(f"{choose.link}/undo", {"ticket": "an undo!"}).json()
    assert (reply["answered"], reply["items"][0]) == (0, first)


def test_a_second_window_is_told_what_its_answer_replaced(choose: Site):
    item = choose.next()["items"][0]["item"]
    choose.answer(item, "cat", "one window")
    assert choose.answer(item, "dog", "another one").json()["before"] == "cat"
    assert len(choose.store.history()) == 2


def test_nothing_that_a_page_is_given_tells_what_is_right(same: Site):
    names = re.compile(r"secret|\.png|cat|dog|emu|fox|gnu|hen|lenet|resnet|zoo|decoy|model", re.IGNORECASE)
    told = same.next()
    for item in told["items"]:
        assert set(item) == {"item", "images", "options"}
        assert item["options"] == ["same", "different"]
    # Random names may hold three letters in a row; they are checked to be random in test_store.
    words = json.dumps(told)
    for item in told["items"]:
        for name in [item["item"], *item["images"]]:
            words = words.replace(name, "")
    assert names.search(words) is None


def test_what_is_told_of_a_decoy_looks_as_what_is_told_of_others(same: Site):
    asked = same.store.items()
    shapes: dict[bool, set[str]] = {True: set(), False: set()}
    for number, item in asked.items():
        (key,) = same.store._row("select key from items where id = ?", number)
        (question,) = (one for one in same.store.upcoming(1, count=100) if one.key == key)
        replies = [same.ask(f"/images/{name}") for name in question.images]
        headers = [{k: v for k, v in one.headers.items() if k != "content-length"} for one in replies]
        shapes[item.decoy].add(repr((question.options, headers, [len(name) for name in question.images])))
    assert shapes[True] == shapes[False]


def test_an_image_is_pixels_and_nothing_else_and_is_kept_by_the_browser_alone(choose: Site):
    name = choose.next()["items"][0]["images"][0]
    reply = choose.ask(f"/images/{name}")
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["cache-control"].startswith("private")
    assert "last-modified" not in reply.headers
    assert reply.content == images.encode(images.read(reply.content))


@pytest.mark.parametrize(
    "path",
    ["/a/unknown", "/a/unknown/next", "/status/unknown", "/images/unknown", "/", "/docs", "/openapi.json"],
)
def test_a_link_that_does_not_exist_says_what_to_do(choose: Site, path: str):
    reply = choose.ask(path)
    assert reply.status_code == 404
    assert "Open the link exactly as it was sent to you" in reply.text


def test_an_annotators_link_opens_no_status_and_no_table(choose: Site):
    token = choose.link.removeprefix("/a/")
    assert choose.ask(f"/status/{token}").status_code == 404
    assert choose.ask(f"/status/{token}/results.csv").status_code == 404
    assert choose.ask(f"/a/{choose.store.token}").status_code == 404


def test_every_reply_has_a_strict_policy(choose: Site):
    item = choose.next()["items"][0]
    replies = [
        choose.ask(path)
        for path in (
            choose.link,
            choose.status,
            "/a/unknown",
            "/static/answer.js",
            f"/images/{item['images'][0]}",
        )
    ]
    for reply in [*replies, choose.answer(item["item"], "yak")]:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in reply.headers


def test_pages_with_links_are_not_kept_by_anyone(choose: Site):
    for path in (choose.link, f"{choose.link}/next", choose.status, f"{choose.status}/results.csv"):
        assert choose.ask(path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("page", ["link", "status"])
def test_pages_hold_no_script_style_or_address_of_elsewhere(choose: Site, page: str):
    text = choose.ask(getattr(choose, page)).text
    assert re.findall(r"https?://|//\w|style=|\son\w+=|<style|<script>", text) == []


def test_an_answer_that_is_not_offered_is_refused_in_words(choose: Site):
    reply = choose.answer(choose.next()["items"][0]["item"], "yak")
    assert reply.status_code == 422
    assert "'yak' is not an answer here: choose one of cat, dog" in reply.json()["detail"]
    assert choose.store.history() == []


@pytest.mark.parametrize(
    ("sent", "code"), [({}, 422), ({"item": "x", "answer": "cat", "ticket": "a" * 20_000}, 413)]
)
def test_what_is_no_answer_is_refused(choose: Site, sent: dict[str, str], code: int):
    assert choose.ask(f"{choose.link}/answer", sent).status_code == code
    assert choose.store.history() == []


@pytest.mark.parametrize(
    "sent",
    [
        b'{"item": "x", "answer": "\\ud800", "ticket": "a ticket"}',
        b'{"item": "\\udfff", "answer": "cat", "ticket": "a ticket"}',
        b'{"item": "x", "answer": "\xff", "ticket": "a ticket"}',
        b"[" * 5000,
    ],
)
def test_an_answer_that_is_no_text_is_refused(choose: Site, sent: bytes):
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=choose.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"content-type": "application/json"}
            return await client.post(f"{choose.link}/answer", content=sent, headers=headers)

    assert asyncio.run(ask()).status_code in (400, 422)
    assert choose.store.history() == []


def test_a_link_whose_bytes_are_no_utf_8_is_unknown(choose: Site):
    for path in ("/a/%ff", "/images/%fe", "/status/%c3"):
        assert choose.ask(path).status_code == 404


def test_a_method_that_is_not_offered_is_answered_by_the_one_that_is(choose: Site):
    reply = choose.ask(f"{choose.link}/answer")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


def test_a_damaged_campaign_acknowledges_nothing(choose: Site):
    item = choose.next()["items"][0]["item"]
    with closing(sqlite3.connect(choose.store.path)) as database:
        database.executescript("pragma foreign_keys = off; drop table answers")
    reply = choose.answer(item, "cat")
    assert reply.status_code == 500
    assert "Nothing was saved" in reply.json()["detail"]


def test_after_the_server_has_stopped_all_answers_lie_in_one_file(choose: Site):
    choose.answer(choose.next()["items"][0]["item"], "cat")
    beside = choose.store.path.with_name(choose.store.path.name + "-wal")
    assert beside.exists()

    async def stop() -> None:
        async with choose.app.router.lifespan_context(choose.app):
            pass

    choose.store.close()
    asyncio.run(stop())
    assert not beside.exists()
    with Store(choose.store.path) as store:
        assert len(store.history()) == 1


def test_the_status_says_how_far_everyone_is(same: Site):
    for question in same.store.upcoming(1, count=100):
        same.store.answer(1, question.key, "same", ticket=question.key)
    text = same.ask(same.status).text
    assert "12 reconstructions and 3 decoys, 5 annotators" in text
    assert "15 of 15" in text
    assert text.count("0 of 15") == 4
    assert "0.0% <small>0 of 3</small>" in text  # all decoys were called the same
    assert "annotator 1 calls 3 of 3 decoys the same, which show something else" in text
    assert text.count("100.0% <small>6 of 6</small>") == 2  # both models
    assert "proxies" not in text.lower()


def test_the_status_of_a_campaign_without_answers_says_so(choose: Site):
    assert "No question has been answered yet." in choose.ask(choose.status).text


def test_proxies_are_named_on_the_status_page_and_have_no_page_of_their_own(choose: Site):
    choose.store.add_proxies({"big": dict.fromkeys(choose.store.items(), "cat")})
    text = choose.ask(choose.status).text
    assert "Answered by proxies, not by people" in text
    assert 'big <span class="badge">proxy</span>' in text
    assert "/a/" not in text
    assert choose.ask(choose.link).status_code == 404


def test_tables_are_downloads_that_say_who_answered(choose: Site):
    choose.store.add_proxies({"big": dict.fromkeys(choose.store.items(), "cat")})
    for table in ("results", "semsim", "answers"):
        reply = choose.ask(f"{choose.status}/{table}.csv")
        assert reply.headers["content-disposition"] == f'attachment; filename="proxy-{table}.csv"'
        assert reply.text.count("proxy") == 12
    assert choose.ask(f"{choose.status}/other.csv").status_code == 404


def test_names_that_look_like_a_page_are_only_text(begin: Begin, pairs):
    site = Site(begin(of=[replace(one, model="<script>alert(1)</script>") for one in pairs]))
    site.answer(site.next()["items"][0]["item"], "cat")
    assert "<script>" not in site.ask(site.status).text
