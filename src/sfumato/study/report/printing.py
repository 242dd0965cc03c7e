"""Pages as PDF, printed by the browser that is installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sfumato.base.files import whole
from sfumato.errors import ConfigError, SfumatoError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = ("--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_SECONDS = 120


def write_pdf(page: str, path: str | os.PathLike[str]) -> Path:
    """Prints an HTML page that needs no other file; the PDF appears whole or not at all.

    Raises ConfigError without Chromium or Chrome, and SfumatoError if it does not print the page.
    """
    path = Path(path)
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise ConfigError(
            "a PDF is printed by Chromium or Chrome, and none is installed: install one, or print "
            "the page from any browser"
        )
    with tempfile.TemporaryDirectory() as folder, whole(path) as temporary:
        source, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        # Its own sandbox does not start for root; the page runs no script and makes no request.
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [browser, *_FLAGS, *root, f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
        try:
            command += [f"--print-to-pdf={printed}", source.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
            shutil.copyfile(printed, temporary)
        except (OSError, subprocess.SubprocessError) as error:
            raise SfumatoError(f"{browser} did not print the page: print the page from a browser") from error
    return path
