"""The documentation site: it builds without a warning, asks no other host, and describes all there is."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_nb")

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site; its notebooks are run by tests of their own."""
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-D", "nb_execution_mode=off"]
    paths = os.pathsep.join([str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*words, "docs", str(out)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """What a page loads, where it links to, and what it may be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("next", "prev", "index", "search", "canonical"):
            self.loaded.append(given.get("href", ""))
        self.loaded += [
            given[name] for name in ("src", "data", "poster", "srcset", "action") if name in given
        ]


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def is_elsewhere(address: str) -> bool:
    return address.startswith("//") or "://" in address


def test_no_page_loads_anything_from_another_host(site, pages):
    assert len(pages) > 60
    for path, page in pages.items():
        assert not [address for address in page.loaded if is_elsewhere(address)], path
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8").replace(" ", "")
        assert "url(http" not in text, style
        assert "url(//" not in text, style
        assert "@importurl" not in text, style


def test_every_link_within_the_site_leads_somewhere(site, pages):
    for path, page in pages.items():
        for link in page.links:
            if is_elsewhere(link) or link.startswith("mailto:"):
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address)).resolve() if address else path
            assert target.is_file(), f"{path.relative_to(site)}: {link}"
            if target.suffix == ".html" and path.name not in ("genindex.html", "search.html"):
                assert unquote(anchor) in pages[target].anchors, f"{path.relative_to(site)}: {link}"


def test_every_public_module_has_a_place_in_the_reference(site):
    described = "".join(path.read_text(encoding="utf-8") for path in site.glob("reference/api/*.html"))
    source = REPOSITORY / "src"
    for path in sorted(source.joinpath("sfumato").rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        if "._" in name or "__main__" in name or name.startswith("sfumato.cli"):
            continue
        assert f'id="module-{name}"' in described, name


def test_every_command_and_its_options_are_described(site):
    folder = site / "reference/cli"
    for words in ("protect", "train", "ledger budget", "show", "keys create"):
        page = (folder / f"{words.split()[0]}.html").read_text(encoding="utf-8")
        assert f"<h{1 + words.count(' ')}>sfumato {words}<" in page, words
        assert "For example:" in page, words
    described = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.html"))
    for option in ("--where", "--split-by", "--metrics-key", "--print-config"):
        assert option in described, option
    assert not (folder / "enroll.html").exists()  # hidden: another spelling


def test_every_key_of_a_study_is_described(site):
    from sfumato.base.settings import list_keys
    from sfumato.study.grid import StudyConfig

    page = (site / "reference/study.html").read_text(encoding="utf-8")
    for key, _, _ in list_keys(StudyConfig):
        assert f">{key.split('.')[-1]}</span>" in page, key


def test_every_route_of_the_service_is_described(site):
    from sfumato.serve.http.routes import router

    page = (site / "reference/http.html").read_text(encoding="utf-8")
    for route in router.routes:
        for method in route.methods:
            if getattr(route, "include_in_schema", True):
                assert f"{method} {route.path}" in page.replace("<span>", ""), route.path
