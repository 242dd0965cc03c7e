"""The lint of words: it shows planted sentences, reads what a user reads, and shows nothing here."""

import pytest
import words

PLANTED = [
    ("The adversary uses his photographs.", "his"),
    ("Then he trains on them.", "he"),
    ("A study is stopped and gone on with.", "gone on with"),
    ("The same command goes on with the rest.", "goes on with"),
    ("Stop and resume at will.", "at will"),
    ("A code travels in the place of the image.", "in the place of"),
    ("The key of 9 characters is none.", "is none"),
    ("A file that is no image.", "is no i"),
    ("Features that are no finite numbers.", "no finite numbers"),
    ("A summary for who asked.", "for who a"),
    ("The records of before, and the new ones.", "of before"),
    ("The official list has it, and this one has not.", "e has not"),
    ("Twenty classes are told from five examples.", "told from"),
    ("From so many releases under one label.", "so many"),
    ("Of single images nothing is known.", "Of"),
    ("It is enough. Who asks twice learns more.", ". Who asks twice learns more."),
    ("The images at one place count once.", "at one place"),
]


@pytest.mark.parametrize(("sentence", "against"), PLANTED)
def test_a_planted_sentence_is_shown_with_its_line(sentence, against):
    shown = list(words.check(words.page("docs/page.md", f"# Title\n\n{sentence}\n")))
    assert (against, 3) in [(finding.words, finding.line) for finding in shown]


@pytest.mark.parametrize(("sentence", "against"), PLANTED)
def test_a_planted_message_of_a_program_is_shown(sentence, against):
    source = f'import sys\n\nNAME = 1\nraise ValueError(f"{{NAME}}: {sentence}")\n'
    shown = [finding for text in words.program("src/module.py", source) for finding in words.check(text)]
    assert 4 in [finding.line for finding in shown]


def test_a_docstring_is_held_to_the_words_that_are_wrong_everywhere():
    source = '"""A module.\n\nThe adversary\nhas his own, so many of them.\n"""\n'
    (finding,) = (finding for text in words.program("src/module.py", source) for finding in words.check(text))
    assert str(finding) == "src/module.py:4: 'his': people are \"they\""


@pytest.mark.parametrize(
    "text",
    [
        "    sfumato ask him\n",
        "```text\nhe is none\n```\n",
        "`he` and [a link](his.md)\n",
        "{% if he is none %}{{ his }}{% endif %}\n",
        "<!-- made by `make results` -->\nas he has it\n<!-- end -->\n",
        "He, Zhang, Ren & Sun 2016; He et al. 2016\n",
        "None of these is a key, and there are none.\n",
        "The setting is no longer read, and there is no other.\n",
        "They can be told apart, as often as anybody likes.\n",
    ],
)
def test_code_names_and_plain_words_are_left_alone(text):
    assert list(words.check(words.page("docs/page.md", text))) == []


def test_a_sentence_of_more_than_forty_words_is_shown_and_a_table_is_not():
    long = " ".join(["word"] * 41)
    (finding,) = words.check(words.page("docs/page.md", f"Short.\n\nOne. {long}.\n"))
    assert (finding.line, finding.cure) == (3, "41 words: make it two sentences")
    for right in (f"{long[:-5]}.", f"| {long} | {long} |", f"- {long[:100]}\n- {long[:100]}\n"):
        assert list(words.check(words.page("docs/page.md", right))) == []


@pytest.fixture(scope="module")
def texts() -> list[words.Text]:
    return list(words.texts())


def test_it_reads_pages_templates_messages_and_the_pages_of_browsers(texts):
    read = {text.path for text in texts}
    assert {"README.md", "CHANGELOG.md", "docs/pitfalls.md", "docs/templates/claims.md.jinja"} <= read
    assert {"src/sfumato/errors.py", "src/sfumato/cli/protect.py", "studies/lfw-smile.yaml"} <= read
    assert {"src/sfumato/study/report/templates/risk.html", "web/src/main.ts", "web/index.html"} <= read
    assert not [path for path in read if path.startswith(("docs/results", "docs/reference", "docs/claims"))]


def test_the_words_of_this_repository_are_plain(texts):
    assert [str(finding) for text in texts for finding in words.check(text)] == []


def test_the_command_prints_what_it_shows_and_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(words, "texts", lambda: [words.page("docs/page.md", "He said so.\n\nAsk him.\n")])
    assert words.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/page.md:1: 'He said': people are \"they\"",
        "docs/page.md:3: 'him': people are \"they\"",
    ]
    monkeypatch.setattr(words, "texts", lambda: [words.page("docs/page.md", "They said so.\n")])
    assert (words.main(), capsys.readouterr().out) == (0, "")
