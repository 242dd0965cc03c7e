"""How long the command line takes to answer --help: no slower than 0.3 s.

python benchmarks/start.py
"""

import subprocess
import sys
import time
from pathlib import Path

LIMIT = 0.3


def main() -> None:
    command = [str(Path(sys.executable).with_name("sfumato")), "--help"]
    bare = [sys.executable, "-c", "pass"]
    for name, words in (("python -c pass", bare), ("sfumato --help", command)):
        times = []
        for _ in range(10):
            start = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        print(f"{name:16s} best of 10: {min(times):.3f} s")
    print(f"limit {LIMIT} s: {'kept' if min(times) <= LIMIT else 'NOT kept'}")


if __name__ == "__main__":
    main()
