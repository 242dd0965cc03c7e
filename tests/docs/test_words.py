"""The lint of words: it counts planted idioms and participles by room, and every room keeps its ceilings."""

import pytest
import words

PLANTED = [
    ("A summary of what is released.", "what"),
    ("None where nothing is recorded.", "where"),
    ("An answer for whoever asks.", "other"),
    ("From so many releases under one label.", "other"),
    ("The key of 9 characters is none.", "other"),
    ("Twenty classes are told from five examples.", "other"),
    ("Of single images nothing is known.", "other"),
    ("The photographs that came to nothing.", "other"),
    ("The images at one place count once.", "other"),
]


def counted(text: str, path: str = "src/sfumato/dp/module.py") -> words.Room:
    return words.rooms(words.program(path, text), [(path, text)])[words.room_of(path)]


@pytest.mark.parametrize(("sentence", "idiom"), PLANTED)
def test_a_planted_idiom_is_counted_with_its_line(sentence, idiom):
    (finding,) = words.idioms(words.page("docs/page.md", f"# Title\n\n{sentence}\n"))
    assert (finding.line, finding.against) == (3, idiom)


@pytest.mark.parametrize(("sentence", "idiom"), PLANTED)
def test_it_is_counted_in_docstrings_comments_and_messages_alike(sentence, idiom):
    sources = (
        f'"""{sentence}"""\n',
        f"NAME = 1  # {sentence}\n",
        f'raise ValueError(f"{{1}}: {sentence}")\n',
    )
    for source in sources:
        (finding,) = counted(source).findings
        assert (finding.line, finding.against) == (1, idiom)


def test_functions_and_methods_named_by_a_participle_are_counted_and_values_and_verbs_are_not():
    source = """
class Ledger:
    spent: float
    def _charged_release(self): ...
    @property
    def kept(self): ...
    def read(self): ...
    def embed(self): ...
    def charge(self): ...
async def drawn(): ...
"""
    names = [finding.words for finding in words.participles("src/sfumato/dp/module.py", source)]
    assert sorted(names) == ["_charged_release", "drawn"]
    assert counted(source).level("participles") == 2


@pytest.mark.parametrize("query", ["select id from images where id = ?", "exists (select 1 from a where b)"])
def test_the_where_of_sql_is_no_idiom(query):
    assert not counted(f"read({query!r})  # one row\n").findings


def test_a_level_is_per_ten_thousand_words():
    assert counted(f'"""What is new. {"word " * 97}"""\n').level("what") == 100.0


@pytest.mark.parametrize(
    "text",
    [
        "    sfumato ask him\n",
        "```text\nhe told so many\n```\n",
        "`whoever` and [a link](told.md)\n",
        "{% if he is none %}{{ told }}{% endif %}\n",
        "<!-- made by `make results` -->\nas he told it\n<!-- end -->\n",
        "He, Zhang, Ren & Sun 2016; He et al. 2016\n",
        "The setting is no longer read, and there is no other. The page says what to do.\n",
        "They can be told apart. Of course. np.where(a) is code.\n",
    ],
)
def test_code_names_and_plain_words_are_left_alone(text):
    read = words.page("docs/page.md", text)
    assert [*words.broken_rules(read), *words.idioms(read)] == []


def test_people_are_they_in_every_text():
    (finding,) = words.broken_rules(
        words.page("docs/page.md", "One.\n\nThe adversary uses his photographs.\n")
    )
    assert str(finding) == "docs/page.md:3: 'his': people are \"they\""


def test_a_sentence_of_more_than_forty_words_is_shown_and_a_table_is_not():
    long = " ".join(["word"] * 41)
    (finding,) = words.broken_rules(words.page("docs/page.md", f"Short.\n\nOne. {long}.\n"))
    assert (finding.line, finding.against) == (3, "41 words: make it two sentences")
    for right in (f"{long[:-5]}.", f"| {long} | {long} |", f"- {long[:100]}\n- {long[:100]}\n"):
        assert list(words.broken_rules(words.page("docs/page.md", right))) == []


def test_a_room_above_a_ceiling_is_shown_with_its_places():
    room = {"dp": counted("def drawn(): ...\n")}
    assert list(words.excesses(room, {"dp": {"participles": 1}})) == []
    assert list(words.excesses(room, {})) == [
        "dp: participles: 1, the ceiling is 0",
        "src/sfumato/dp/module.py:1: 'drawn': participles",
    ]


def test_a_ceiling_only_goes_down():
    room = {"dp": counted("def drawn(): ...\n")}
    for old, new in ((0, 0), (1, 1), (7, 1)):
        assert f"participles = {new}" in words.lower(room, {"dp": {"participles": old}})


def test_it_reads_pages_templates_messages_and_the_pages_of_browsers(monkeypatch):
    monkeypatch.setattr(words, "program", lambda path, _: [words.Text(path, 1, "")])
    read = {text.path for text in words.texts()}
    assert {"README.md", "CHANGELOG.md", "docs/pitfalls.md", "docs/templates/claims.md.jinja"} <= read
    assert {"src/sfumato/errors.py", "src/sfumato/cli/protect.py", "studies/lfw-smile.yaml"} <= read
    assert {"src/sfumato/study/report/templates/risk.html", "web/src/main.ts", "web/index.html"} <= read
    assert not [path for path in read if path.startswith(("docs/results", "docs/reference", "docs/claims"))]


def test_the_command_prints_nothing_and_ends_with_0_within_the_ceilings(monkeypatch, capsys):
    # Whether this repository is within them is a check of `make lint`.
    monkeypatch.setattr(words, "texts", lambda: [words.page("docs/page.md", "They said so.\n")])
    monkeypatch.setattr(words, "programs", lambda: [])
    assert (words.main([]), capsys.readouterr().out) == (0, "")


def test_the_command_prints_what_it_shows_and_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(words, "texts", lambda: [words.page("docs/page.md", "He said so.\n\nAsk him.\n")])
    monkeypatch.setattr(words, "programs", lambda: [])
    assert words.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/page.md:1: 'He said': people are \"they\"",
        "docs/page.md:3: 'him': people are \"they\"",
    ]
