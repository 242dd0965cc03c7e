"""What an installation costs: the size of the wheel, what pip pulls with it, and how soon it answers.

python benchmarks/package.py

Packages and bytes are those of this environment, as pip installed them (constraints.txt): other machines, and
PyTorch with CUDA, differ.
"""

import importlib.metadata as metadata
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[1]
TIMES = 10


def wheel_size() -> int:
    """Bytes of the wheel of this checkout, with the page if it is built."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, folder)
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / "src", Path(folder) / "src", ignore=leave)
        code = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
        (wheel,) = (Path(folder) / "dist").glob("*.whl")
        return wheel.stat().st_size


def name_of(text: str) -> str:
    return text.lower().replace("_", "-")


def needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def pulled(*extras: str) -> dict[str, int]:
    """The bytes of each package that `pip install sfumato[extras]` installs beside sfumato."""
    sizes: dict[str, int] = {}
    left = [("sfumato", extra) for extra in ("", *extras)]
    seen = set(left)
    while left:
        name, extra = left.pop()
        package = metadata.distribution(name)
        if name != "sfumato":
            paths = (Path(str(file.locate())) for file in package.files or ())
            sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())  # bytecode included
        for text in package.requires or ():
            requirement = Requirement(text)
            if needed(requirement, extra):
                more = [(name_of(requirement.name), each) for each in ("", *requirement.extras)]
                left += [each for each in more if each not in seen]
                seen.update(more)
    return sizes


def extras() -> Iterator[str]:
    """The extras of which everything is installed here."""
    for extra in metadata.metadata("sfumato").get_all("Provides-Extra") or ():
        try:
            pulled(extra)
        except metadata.PackageNotFoundError:
            continue
        if extra not in ("test", "lint", "docs", "bench", "sbom"):
            yield extra


def seconds(*words: str) -> float:
    """Processor seconds of a command, the least of some runs: other work on the machine does not count.

    Bytecode is kept between the runs, as pip keeps it of what it installs.
    """
    times = []
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = folder
        for _ in range(TIMES):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, capture_output=True, env=env)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def main() -> None:
    print(f"wheel: {megabytes(wheel_size())}")
    base = pulled()
    heaviest = sorted(base.items(), key=lambda item: -item[1])[:3]
    names = ", ".join(f"{name} {megabytes(size)}" for name, size in heaviest)
    print(f"pip install sfumato: {len(base)} packages, {megabytes(sum(base.values()))} ({names}, ...)")
    for extra in extras():
        more = {name: size for name, size in pulled(extra).items() if name not in base}
        print(f"  [{extra}] adds {len(more)} packages, {megabytes(sum(more.values()))}")
    for words, some in {
        "a cloud, [serve]": ("serve",),
        "with PyTorch, [serve,edge]": ("serve", "edge"),
    }.items():
        whole = pulled(*some)
        print(f"{words}: {len(whole)} packages, {megabytes(sum(whole.values()))}")
    python = sys.executable
    nothing, imported = (seconds(python, "-c", code) for code in ("", "import sfumato"))
    helped = seconds(str(Path(python).with_name("sfumato")), "--help")
    print(f"import sfumato: {1000 * (imported - nothing):.0f} ms; an empty program: {1000 * nothing:.0f} ms")
    print(f"sfumato --help: {1000 * helped:.0f} ms of the processor, the best of {TIMES}")


if __name__ == "__main__":
    main()
