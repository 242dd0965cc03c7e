"""How large what is installed for a cloud is, with PyTorch and without: the sum of its packages' files.

python benchmarks/installed.py

Packages are those that the extras of pyproject.toml bring, in the versions that are installed here.
"""

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
SETS = {"a cloud: [serve]": ["serve"], "with PyTorch: [serve,edge]": ["serve", "edge"]}


def _of_project(extras: list[str]) -> list[Requirement]:
    """What the project asks for, with these extras and those that they name."""
    with PROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            found += _of_project(list(requirement.extras)) if requirement.name == "sfumato" else [requirement]
    return found


def _brought(requirement: Requirement, found: set[str]) -> Iterator[str]:
    """The names of a package and of all that it brings, as far as they are installed; each once."""
    name = requirement.name.lower().replace("_", "-")
    if name in found:
        return
    try:
        needed = distribution(name).requires or []
    except PackageNotFoundError:  # for another system
        return
    found.add(name)
    yield name
    for each in map(Requirement, needed):
        extras = requirement.extras or {""}
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
            yield from _brought(each, found)


def _bytes(name: str) -> int:
    files = distribution(name).files or []
    return sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file())


def main() -> None:
    for words, extras in SETS.items():
        found: set[str] = set()
        sizes = {name: _bytes(name) / 1e6 for each in _of_project(extras) for name in _brought(each, found)}
        largest = sorted(sizes.items(), key=lambda each: -each[1])[:6]
        named = ", ".join(f"{name} {size:.0f}" for name, size in largest)
        print(f"{words}: {sum(sizes.values()):.0f} MB in {len(sizes)} packages; largest: {named}")


if __name__ == "__main__":
    main()
