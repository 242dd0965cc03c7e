"""The command line. Each command parses, makes a configuration, calls one public function, prints.

Heavy imports stand inside the commands, so that --help is instant.
"""

import io
import sys

from sfumato.errors import SfumatoError


def main() -> None:
    """Run the command line; an error that is meant for the user is one line, never a traceback."""
    from sfumato.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        # File names need not be text, and a message must not fail over one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (SfumatoError, OSError) as error:
        print(f"sfumato: {error}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            print("\nsfumato: stopped. What was finished is kept: the same command goes on", file=sys.stderr)
        raise


_INTERRUPTED = 130  # what typer exits with after Ctrl-C
