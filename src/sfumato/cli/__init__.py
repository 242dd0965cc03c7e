"""The command line. Each command parses, makes a configuration, calls one public function, prints.

Heavy imports stand inside the commands, so that --help is instant.
"""

import io
import sys
import traceback

from sfumato.cli.left import advise
from sfumato.errors import SfumatoError


def main() -> None:
    """Run the command line; an error for the user is one line, never a traceback."""
    from sfumato.cli.app import app
    from sfumato.cli.show import VOLUME

    for stream in (sys.stdout, sys.stderr):
        # File names need not be text, and a message must not fail over one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="sfumato")  # however it was started
    except (SfumatoError, ModuleNotFoundError, OSError) as error:
        if (message := _in_words(error)) is None:
            raise
        if VOLUME.verbose:
            traceback.print_exc()
        print(f"sfumato: {message}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            kept = "Finished work is kept. Run the same command again to resume"
            anew = "The same command begins anew"
            print(f"\nsfumato: stopped. {kept if VOLUME.keeps else anew}", file=sys.stderr)
        elif stop.code == _NOT_UNDERSTOOD and (hint := advise(sys.argv[1:])):
            print(f"sfumato: {hint}", file=sys.stderr)
        raise


def _in_words(error: Exception) -> str | None:
    """Describe an error in a line for the user; None for a fault of the program."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, ModuleNotFoundError):
        return str(error)
    # Its kind PackageNotFoundError is of a package whose version is asked for, not of an import.
    if error.name != "torch" or type(error) is not ModuleNotFoundError:
        return None
    clone = "this command needs PyTorch: in the clone of sfumato, run"
    return f"{clone} pip install -c constraints.txt -e '.[study]'"


_INTERRUPTED, _NOT_UNDERSTOOD = 130, 2  # exit codes of typer after Ctrl-C, and for an unknown word
