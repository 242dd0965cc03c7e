"""A lint of words: how far our English and our names are from plain ones, counted by room.

It reads the pages, the templates of generated pages and the texts of the browser's page. Of every module it
reads docstrings, comments, messages and function names. Code, links and template expressions do not count.

Idioms are counted per 10,000 words; functions named by a participle are counted one by one. Each room of
`src/sfumato` has its ceilings in `docs/words.toml`, and so have the pages. A ceiling only goes down:
`python docs/words.py --lower dp serve` writes the present counts of these rooms wherever they are lower.

`python docs/words.py` prints the rooms above a ceiling with their worst places, and ends with 1 if there are
any; `python docs/words.py dp serve` prints every place in these rooms. Two rules have no ceiling: people are
"they", and a sentence of a page has at most 40 words.
"""

import ast
import io
import math
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CEILINGS = Path(__file__).with_suffix(".toml")
LONGEST = 40  # words of a sentence of a page
WORST = 10  # places that are printed for each ceiling

# SQL that reads or changes rows: its "where" is no idiom.
QUERY = re.compile(r"^\s*\(?(select|with|insert|update|delete)\b|\(select |\bwhere [\w.]+ = ")

# Pages made from other texts are read there: reference pages from docstrings, results from templates.
PAGES = ("*.md", "docs/*.md", "docs/*/*.md", "docs/templates/**/*.jinja", "web/index.html", "studies/*.yaml")
GENERATED = re.compile(r"docs/(reference/|results|claims)")
PROGRAMS = ("src/**/*.py", "studies/tables.py")
SCREENS = ("src/**/*.html", "web/src/**/*.ts")

# Not words of a page: parts made from templates, code, links, and expressions of a template or the browser.
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
WORD = re.compile(r"[^\W\d_][\w'-]*")
PEOPLE = re.compile(
    r"\b(he|him|his|himself|she|hers?|herself|His|Him|She|Hers?)\b|\bHe (?!et|and|&|20|\()[a-z]+"
)

# A space stands for any white space. Libraries that people like to read (jax_privacy, starlette, optax,
# equinox, httpx) have at most 1.3 "what is" and 9 "where" per 10,000 words, and none of the others.
IDIOMS = {
    "what": r"\b[Ww]hat\b(?! (to|if)\b)(?![?:])",
    "where": r"(?<![-.\w])where\b(?![:(\w])",
    "other": "|".join(
        (
            r"\b[Ww]ho(m|se)?ever\b",
            r"\b[Ss]o (many|much|few)\b(?! (that|as)\b)",
            r"\b[Bb]eside\b",
            r"(?:^|(?<=[.:;] ))Of (?!course\b)",
            r"(?<![Tt]here )\b(is|are|was|were|be|been|has|have|had|of|by|with|from|in|at|on) none\b",
            r"\btold\b(?! apart)",
            r"\bof (which|whom) (it|they|there|none|nothing|one|a|an|the)\b",
            r"\b(comes?|came|goes|gone) (to|on|by)\b",
            r"\b(stands?|stood) (?!for|in)",
            r"\b(at|of|from|in) (the|one|each|every|another|many|several|this|that|its|their) places?\b",
            r"(?<![Tt]here )\b(is|are|was|were) no (?!longer|more|less|better|worse|other|doubt)\w",
            r"\bat will\b|\bw(hereof|hereto|hence|hereby)\b|\b(upon|nay|ere|hereof|thereof|therein)\b",
        )
    ),
}
PLAIN = {"what": 10, "where": 9, "other": 5}  # levels that need not go down further
PARTICIPLES = "participles"
COLUMNS = (*IDIOMS, PARTICIPLES)

# Past participles that no rule of spelling gives; "read", "put", "set", "cut" and "run" are verbs as well.
IRREGULAR = re.compile(
    "begun|broken|brought|built|chosen|dealt|done|drawn|driven|fallen|found|given|gone|grown|held|hidden|"
    "kept|known|laid|led|left|lent|lost|made|meant|met|paid|risen|said|seen|sent|shown|sold|spent|stood|struck|"
    "taken|thought|thrown|told|torn|understood|won|worn|wound|written"
)
VERBS = re.compile("(bl|exc|f|n|proc|s|sp|succ)eed|embed|shed")


@dataclass(frozen=True)
class Text:
    """Words somebody reads; `line` is where they begin in the file."""

    path: str
    line: int
    words: str


@dataclass(frozen=True, order=True)
class Finding:
    """An idiom, a participle or a sentence against a rule, and its line."""

    path: str
    line: int
    words: str
    against: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.against}"


@dataclass(frozen=True)
class Room:
    """The words of a room, and everything that counts against it."""

    words: int
    findings: tuple[Finding, ...]

    def level(self, column: str) -> float:
        """Participle names, or occurrences of an idiom per 10,000 words."""
        count = sum(finding.against == column for finding in self.findings)
        return count if column == PARTICIPLES else 1e4 * count / max(self.words, 1)

    def ceiling(self, column: str) -> int:
        """The ceiling for this level. Idioms get a tenth more: deleting other words raises their share."""
        level = self.level(column)
        return int(level) if column == PARTICIPLES else max(math.ceil(1.1 * level + 1), PLAIN[column])


def room_of(path: str) -> str:
    """The room of a file: a folder of `src/sfumato`, `shared` for the modules beside them, or `pages`."""
    match = re.match(r"src/sfumato/(?:(\w+)/)?", path)
    return (match[1] or "shared") if match else "pages"


def texts() -> Iterator[Text]:
    """Everything that somebody reads in this repository, except names."""
    for pattern in (*PAGES, *SCREENS):
        for path in sorted(REPOSITORY.glob(pattern)):
            name = str(path.relative_to(REPOSITORY))
            if not GENERATED.match(name) and "node_modules" not in path.parts:
                yield page(name, path.read_text(encoding="utf-8"))
    for name, source in programs():
        yield from program(name, source)


def programs() -> Iterator[tuple[str, str]]:
    """The path and the source of every module that is read."""
    for pattern in PROGRAMS:
        for path in sorted(REPOSITORY.glob(pattern)):
            yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")


def page(path: str, text: str) -> Text:
    """A page or a template without its code, links, expressions, and parts made from templates."""
    return Text(path, 1, HIDDEN.sub(lambda match: _blank(match[0]), text))


def program(path: str, source: str) -> Iterator[Text]:
    """The comments of a module, and its strings of words but SQL, without the values of f-strings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], _without_code(token.string.lstrip("# ")))
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        words = "" if id(node) in parts else _words(node)
        if isinstance(node, ast.expr) and " " in words and not QUERY.search(words):
            yield Text(path, node.lineno, _without_code(words))


def participles(path: str, source: str) -> Iterator[Finding]:
    """The functions and methods of a module whose first word is a participle; a property may be one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.name.strip("_").split("_")[0].lower()
            regular = first.endswith("ed") and not VERBS.fullmatch(first)
            value = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if (regular or IRREGULAR.fullmatch(first)) and not value:
                yield Finding(path, node.lineno, node.name, PARTICIPLES)


def _words(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "¤" for part in node.values)
    return ""


def _without_code(words: str) -> str:
    return re.sub(r"`[^`]*`", lambda code: _blank(code[0]), words)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", "¤", text)


def idioms(text: Text) -> Iterator[Finding]:
    """The idioms of a text."""
    words = re.sub(r"(?<=\n) +", "", text.words)  # indentation would be more than one white space
    for idiom, pattern in IDIOMS.items():
        for match in re.finditer(pattern.replace(" ", r"\s"), words, re.M):
            yield Finding(
                text.path, text.line + words.count("\n", 0, match.start()), _line(words, match), idiom
            )


def _line(words: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - 30)
    return " ".join(words[start : match.end() + 30].split())


def broken_rules(text: Text) -> Iterator[Finding]:
    """The words and sentences that no room may have."""
    for match in PEOPLE.finditer(text.words):
        line = text.line + text.words.count("\n", 0, match.start())
        yield Finding(text.path, line, match[0], 'people are "they"')
    if text.path.endswith(".md"):
        prose = re.sub(r"^\s*[|#].*$", lambda row: _blank(row[0]), text.words, flags=re.M)
        for match in SENTENCE.finditer(prose):
            words = [word for word in match[0].split() if set(word) != {"¤"}]
            if len(words) > LONGEST:
                line = text.line + text.words.count("\n", 0, match.start())
                cure = f"{len(words)} words: make it two sentences"
                yield Finding(text.path, line, " ".join(words[:6]) + " ...", cure)


def rooms(read: Iterable[Text], modules: Iterable[tuple[str, str]]) -> dict[str, Room]:
    """Count every text and every module in its room."""
    words: Counter[str] = Counter()
    findings: dict[str, list[Finding]] = defaultdict(list)
    for text in read:
        words[room_of(text.path)] += len(WORD.findall(text.words))
        findings[room_of(text.path)] += idioms(text)
    for path, source in modules:
        findings[room_of(path)] += participles(path, source)
    return {room: Room(words[room], tuple(sorted(findings[room]))) for room in sorted({*words, *findings})}


def excesses(counted: dict[str, Room], ceilings: dict[str, dict[str, int]]) -> Iterator[str]:
    """A line for each level above its ceiling (0 for a new room), and its worst files, place by place."""
    for name, room in counted.items():
        for column in COLUMNS:
            ceiling = ceilings.get(name, {}).get(column, 0)
            if room.level(column) > ceiling:
                unit = "" if column == PARTICIPLES else " per 10,000 words"
                yield f"{name}: {column}: {room.level(column):.4g}{unit}, the ceiling is {ceiling}"
                found = [finding for finding in room.findings if finding.against == column]
                files = Counter(finding.path for finding in found)
                yield from map(str, sorted(found, key=lambda place: -files[place.path])[:WORST])


def lower(counted: dict[str, Room], ceilings: dict[str, dict[str, int]], kept: Collection[str] = ()) -> str:
    """The file of ceilings, each lowered to the present count if that is less, except of `kept` rooms."""
    lines = [
        "# Idioms per 10,000 words and participle names, at most. Written by `python docs/words.py --lower`."
    ]
    for name, room in counted.items():
        old = ceilings.get(name, {})
        new = {column: room.ceiling(column) for column in COLUMNS}
        values = (f"{c} = {old[c] if name in kept else min(old.get(c, new[c]), new[c])}" for c in COLUMNS)
        lines.append(f"{name} = {{{', '.join(values)}}}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Print whatever is above a ceiling or against a rule. Returns the exit code."""
    read = list(texts())
    counted = rooms(read, programs())
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    if arguments[:1] == ["--lower"]:
        kept = set(ceilings) - set(arguments[1:] or counted)
        CEILINGS.write_text(lower(counted, ceilings, kept), encoding="utf-8")
        return 0
    for name in arguments:
        print(
            name, counted[name].words, {column: round(counted[name].level(column), 1) for column in COLUMNS}
        )
        print(*counted[name].findings, sep="\n")
    lines = [*map(str, (finding for text in read for finding in broken_rules(text)))]
    lines += excesses(counted, ceilings)
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
