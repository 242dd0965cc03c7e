"""What a graph costs in a process of its own: `python -m sfumato.edge.measure MODEL IMAGES`.

Prints one line of JSON, {"milliseconds": [each image's], "memory": bytes}. Imports nothing large but
onnxruntime, whose own memory is not counted: of the peak resident set, what it grew by since before the file
was read.
"""

import json
import re
import sys
import time
from pathlib import Path

from sfumato.edge.runtime import session

_WARM_UP = 10  # runs that are not timed: the first ones allocate


def peak() -> int:
    """The most bytes of memory that this process ever had resident.

    Of Linux's /proc, since what getrusage says begins, after a fork, with what the parent had.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def main(path: str, count: int) -> None:
    """Time a graph on images of noise, one by one."""
    import numpy as np
    import onnxruntime  # noqa: F401, so that it is there before the first peak is read

    draw = np.random.default_rng(0)
    before = peak()
    run = session(path)
    (given,) = run.get_inputs()
    milliseconds = []
    for _ in range(_WARM_UP + count):
        image = draw.integers(0, 256, given.shape, dtype=np.uint8)
        start = time.perf_counter()
        run.run(None, {given.name: image})
        milliseconds.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"milliseconds": milliseconds[_WARM_UP:], "memory": peak() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
