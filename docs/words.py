"""A lint of words: what a user reads says things as anybody would, and calls people "they".

It reads the pages, the templates of those that are generated, the texts of the browser's page, and every
string of the library: docstrings, help texts and messages. Code, links and what a template fills in are not
words. `python docs/words.py` prints what it finds, a line each, and ends with 1 if there is anything.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LONGEST = 40  # words of a sentence of a page

# Whatever is made from other texts is read there: reference pages from docstrings, results from templates.
PAGES = ("*.md", "docs/*.md", "docs/*/*.md", "docs/templates/**/*.jinja", "web/index.html", "studies/*.yaml")
GENERATED = re.compile(r"docs/(reference/|results|claims\.md)")
PROGRAMS = ("src/**/*.py", "studies/results_page/*.py")
SCREENS = ("src/**/*.html", "web/src/**/*.ts")

# Not words of a page: parts made from templates, code, links, and what a template or the browser fills in.
HIDDEN = re.compile(
    "|".join(
        (
            r"<!-- [\w ,]*made by `make results` -->.*?<!-- end -->",
            r"<!--.*?-->",
            r"```.*?```",
            r"^    .*?$",
            r"`[^`\n]*`",
            r"\]\([^)]*\)",
            r"\{%.*?%\}",
            r"\{\{.*?\}\}",
            r"\{#.*?#\}",
            r"\$\{[^}]*\}",
            r"<(style|script|svg).*?</\1>",
            r"<[^>\n]*>",
        )
    ),
    re.S | re.M,
)

# Up to a stop before white space, or the end of a paragraph or of an item of a list.
SENTENCE = re.compile(r"""(?:[^.!?:;\n]|[.!?:;](?![*")]*\s)|\n(?!\s*(?:[-*]|\d+\.|¤*\n|\n)))+""")


@dataclass(frozen=True)
class Rule:
    """Words that are not to be written.

    Attributes:
        pattern: a regular expression; a space in it stands for any white space.
        cure: what to write instead.
        docstrings: whether it holds in docstrings, too, or in pages and messages alone.
    """

    pattern: str
    cure: str
    docstrings: bool = True


RULES = (
    Rule(r"\b(he|him|his|himself|she|hers?|herself|His|Him|She|Hers?)\b", 'people are "they"'),
    Rule(r"\bHe (?!et|and|&|20|\()[a-z]+", 'people are "they"'),
    Rule(r"\b([Gg]one|[Gg]o|[Gg]oes|[Ww]ent) on (with|from)\b|\bgone on\b", '"continues" or "resumes"'),
    Rule(r"\b(training|run|study|call|command|job|node|cluster|rest) goes on\b", '"continues" or "resumes"'),
    Rule(r"(?<!that )\bat will\b(?! lie)", '"as often as you like", or nothing'),
    Rule(r"\bin the place of\b", '"instead of" or "for"'),
    Rule(
        r"(?<!there )(?<!There )\b(is|are|was|were) none\b(?! of)(?! [Nn]one)",
        'name what it is not: "is not a key"',
    ),
    Rule(
        r"(?<!there )(?<!There )\b(is|are|was|were) no (?!longer|more|less|better|worse|other|higher|lower"
        r"|larger|smaller|fewer|doubt|later|earlier|wider)\w",
        '"is not a" or "are not"',
    ),
    Rule(r"\bno finite (number|value)s?\b", '"not finite"'),
    Rule(r"\b(to|for|from|by|with) who (?!(is|are|it|they|wears|was|were)\b)\w", '"whoever", or name them'),
    Rule(r"\b(of|from) (before|then)(?=[.,;:)]| and| that)", "name the version or the time"),
    Rule(r"\w (has|have) not(?=[.,;:)]|$)", '"does not have"'),
    Rule(r"\b(whereof|whereto|thereof|therein|hereof|whence|whereby|upon|nay|ere)\b", "a plainer word"),
    Rule(r"(^|[.:;] )Of (?!course\b)", "begin with the subject", False),
    Rule(r"(^|[.;:] )Who (?!(are|is) (you|who)\b)[^?.]*\.", '"whoever", or name them', False),
    Rule(r"\bso many\b(?! (that|as)\b)", "say how many, or of what", False),
    Rule(
        r"\b(is|are|was|were|be|been|better|worse|rightly) told (?!apart)",
        '"recognised" or "distinguished"',
        False,
    ),
    Rule(r"\btold (rightly|better|worse|from|by)\b", '"recognised" or "distinguished"', False),
    Rule(
        r"\b(at|of|from) (one|each|every|another|many|several|this|that) places?\b",
        "position, folder, row",
        False,
    ),
)


@dataclass(frozen=True)
class Text:
    """Words somebody reads. `line` is where they begin in the file; a docstring is read as reference."""

    path: str
    line: int
    words: str
    docstring: bool = False


@dataclass(frozen=True, order=True)
class Finding:
    """Words against a rule, and where they stand."""

    path: str
    line: int
    words: str
    cure: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.cure}"


def texts() -> Iterator[Text]:
    """All that is read of this repository."""
    for pattern in (*PAGES, *SCREENS):
        for path in sorted(REPOSITORY.glob(pattern)):
            name = str(path.relative_to(REPOSITORY))
            if not GENERATED.match(name) and "node_modules" not in path.parts:
                yield page(name, path.read_text(encoding="utf-8"))
    for pattern in PROGRAMS:
        for path in sorted(REPOSITORY.glob(pattern)):
            yield from program(str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8"))


def page(path: str, text: str) -> Text:
    """A page or a template without its code, links, expressions, and parts that are made from templates."""
    return Text(path, 1, HIDDEN.sub(lambda match: _blank(match[0]), text))


def program(path: str, source: str) -> Iterator[Text]:
    """The strings of a module that have a space, without what an f-string fills in."""
    tree = ast.parse(source)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        words = "" if id(node) in parts else _words(node)
        if " " in words:
            yield Text(
                path,
                node.lineno,
                re.sub(r"`[^`]*`", lambda code: _blank(code[0]), words),
                id(node) in docstrings,
            )


def _words(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "¤" for part in node.values)
    return ""


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", "¤", text)


def check(text: Text) -> Iterator[Finding]:
    """What a text has against the rules."""
    words = re.sub(
        r"(?<=\n) +", "", text.words
    )  # a line's indentation is no word; a space is one white space
    for rule in RULES:
        if rule.docstrings or not text.docstring:
            for match in re.finditer(rule.pattern.replace(" ", r"\s"), words, re.M):
                line = text.line + words.count("\n", 0, match.start())
                yield Finding(text.path, line, " ".join(match[0].split()), rule.cure)
    if text.path.endswith(".md"):
        yield from _long(text)


def _long(text: Text) -> Iterator[Finding]:
    prose = re.sub(r"^\s*[|#].*$", lambda row: _blank(row[0]), text.words, flags=re.M)
    for match in SENTENCE.finditer(prose):
        words = [word for word in match[0].split() if set(word) != {"¤"}]
        if len(words) > LONGEST:
            line = text.line + text.words.count("\n", 0, match.start())
            yield Finding(
                text.path, line, " ".join(words[:6]) + " ...", f"{len(words)} words: make it two sentences"
            )


def main() -> int:
    """Print what is against the rules. Returns the exit code."""
    findings = sorted(finding for text in texts() for finding in check(text))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
