"""The pages of the reference that are generated, and how they are written."""

from pathlib import Path

from generators import commands, http, modules, notebooks, settings


def write(folder: Path) -> None:
    """Write the generated pages below a folder; files whose text is the same stay untouched, others go."""
    pages = {**modules.pages(), **commands.pages(), **settings.pages(), **http.pages()}
    pages |= notebooks.pages(folder.parent / "notebooks")
    for old in (*folder.glob("api/*.rst"), *folder.glob("cli/*.md"), *folder.glob("*.md")):
        if str(old.relative_to(folder)) not in pages and old.name != "index.md":
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
