"""The code blocks of pages, and who runs them."""

import contextlib
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sfumato.cli import main

REPOSITORY = Path(__file__).parents[2]
NOT_CODE = ("text", "{toctree}")  # what a program prints or reads, and what Sphinx alone reads


EPISODES = ["--set", "epochs=1", "--set", "episodes_per_epoch=2", "--set", "validation_episodes=2"]
SHAPE = ["--set", "way=3", "--set", "shot=2", "--set", "queries=2", "--set", "validation_way=3"]
SHAPE += ["--set", "validation_shot=2", "--set", "validation_queries=2"]
# What is added to a command, so that it takes seconds: a page's settings are those of who wants an answer.
SMALLER = {
    "train few-shot": [
        *EPISODES,
        *SHAPE,
        "--size",
        "32",
        "--episodes",
        "5",
        "--way",
        "3",
        "--shot",
        "2",
        "--queries",
        "2",
    ],
    "train code": [*EPISODES, *SHAPE],
    "train mask": ["--set", "epochs=1"],
    "train feature": [f"--set={name}_epochs=1" for name in ("attribute", "simple", "private")],
    "train meta": ["--set", "steps=2", "--episodes", "3"],
    "demo": ["--size", "16", "--at-most", "0.9"],
    "audit protection": ["--trials", "10000"],
}

_SERVE = "import sys; from sfumato.cli import main; sys.argv = ['sfumato', *sys.argv[1:]]; main()"
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        page: from the root of the repository.
        line: where it begins, from 1.
        language: what a fence names, which may be nothing; "sh" of an indented block.
        text: without fence and indentation.
        reason: why it is not run; None where it is.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def runs(self) -> bool:
        """Whether it is code that is run here."""
        return self.reason is None and self.language not in NOT_CODE


def blocks(page: str, text: str) -> Iterator[Block]:
    """The code blocks of a page in Markdown, in their order."""
    lines = text.splitlines()
    reason: str | None = None
    row = 0
    while row < len(lines):
        start = row
        fence = re.match(r"^```+(\S*)", lines[row])
        if fence:
            row += 1
            while not lines[row].startswith("```"):
                row += 1
            yield Block(page, start + 1, fence[1], "\n".join(lines[start + 1 : row]), reason)
            reason = None
        elif (
            lines[row].startswith("    ") and lines[row].strip() and (row == 0 or not lines[row - 1].strip())
        ):
            while row + 1 < len(lines) and (lines[row + 1].startswith("    ") or not lines[row + 1].strip()):
                row += 1
            text_of = "\n".join(line[4:] for line in lines[start : row + 1]).rstrip()
            yield Block(page, start + 1, "sh", text_of, reason)
            reason = None
        elif mark := _NOT_RUN.match(lines[row]):
            reason = mark[1]
        elif lines[row].strip():
            reason = None
        row += 1


def of(page: str) -> list[Block]:
    """The code blocks of a page of the repository."""
    return list(blocks(page, (REPOSITORY / page).read_text(encoding="utf-8")))


class Shell:
    """Runs the commands of shell blocks in this process. State: variables, and services that it started.

    It knows what the pages use: `NAME=value` after export, `$NAME`, `$(command)`, `&&`, `#`, `date +%F`,
    `sqlite3 FILE SQL`, and a service that is left in the background by `&`. The port 8000 of the pages
    becomes one that is free, and /var a folder of the current one.
    """

    def __init__(self, smaller: Mapping[str, list[str]]) -> None:
        self._smaller = smaller
        self._services: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def close(self) -> None:
        """Stop the services."""
        for service in self._services:
            service.terminate()
            service.wait()

    def adapted(self, text: str) -> str:
        """Text of a page with the port and the folders of this shell."""
        return text.replace(":8000", f":{self._port}").replace("/var/", f"{Path.cwd()}/var/")

    def run(self, text: str, capture) -> None:
        """Run the lines of a block; `capture()` gives what was printed since it was last asked."""
        for line in self.adapted(text).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                self._chain(re.sub(r"\s+#.*$", "", line), capture)

    def _chain(self, line: str, capture) -> None:
        background = line.rstrip().endswith("&") and not line.rstrip().endswith("&&")
        for part in line.rstrip().removesuffix("&").split("&&") if background else line.split("&&"):
            self._command(part, capture, background=background)

    def _command(self, text: str, capture, *, background: bool) -> None:
        text = re.sub(r"\$\((.+?)\)", lambda inner: self._output(inner[1], capture), text)
        words = [os.path.expandvars(word) for word in shlex.split(text)]
        if words[0] == ".":  # activates the environment, in which this is
            return
        if words[0] == "export":
            os.environ.update(pair.split("=", 1) for pair in words[1:])
            return
        program, *arguments = words
        if program == "date":
            print(time.strftime(arguments[0].removeprefix("+")))
            return
        if program == "sqlite3":
            query(*arguments)
            return
        assert Path(program).name == "sfumato", f"a page may call sfumato alone, or say why not: {text}"
        for start, more in self._smaller.items():
            if " ".join(arguments).startswith(start):
                arguments += more
        if background:
            self._serve(arguments)
        else:
            call(arguments)

    def _output(self, text: str, capture) -> str:
        capture()
        self._command(text, capture, background=False)
        return capture().out.strip()

    def _serve(self, arguments: list[str]) -> None:
        words = [sys.executable, "-c", _SERVE, *arguments, "--port", str(self._port)]
        self._services.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        for _ in range(3600):  # a busy machine starts two processes of PyTorch
            assert self._services[-1].poll() is None, "the service ended"
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the service does not answer")


def query(file: str, statement: str) -> None:
    """What the program `sqlite3` does: run a statement on a database that is there, and print its rows."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as database:
        for row in database.execute(statement):
            print(*row, sep="|")


def call(arguments: list[str]) -> None:
    """`sfumato` with arguments, in this process. Raises AssertionError for another exit code than 0."""
    before, code = sys.argv, None
    sys.argv = ["sfumato", *arguments]
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    assert not code, f"sfumato {' '.join(arguments)}: exit code {code}"
