"""Studies are scripts beside the library: what the tests of their pages import is found there."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "studies"))  # last: their names are plain words
