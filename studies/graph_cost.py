"""The cost of a graph in its own process: `python studies/graph_cost.py MODEL IMAGES`.

Prints one line of JSON, {"milliseconds": [one for each image], "memory": bytes}. It imports nothing large but
onnxruntime, whose own memory does not count: memory is the growth of the peak resident set since before the
file was read.
"""

import json
import re
import sys
import time
from pathlib import Path

from sfumato.export.card import session

_WARM_UP = 10  # untimed runs: the first ones allocate


def peak() -> int:
    """Return the most bytes of memory that this process ever had resident.

    From Linux's /proc: after a fork, getrusage starts with the parent's peak.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def main(path: str, count: int) -> None:
    """Time a graph on images of noise, one by one."""
    import numpy as np
    import onnx  # noqa: F401, imported before the first peak is read
    import onnxruntime  # noqa: F401, imported before the first peak is read

    draw = np.random.default_rng(0)
    before = peak()
    run = session(path)
    (given,) = run.session.get_inputs()
    milliseconds = []
    for _ in range(_WARM_UP + count):
        image = draw.integers(0, 256, given.shape, dtype=np.uint8)
        start = time.perf_counter()
        run.run(None, {given.name: image})
        milliseconds.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"milliseconds": milliseconds[_WARM_UP:], "memory": peak() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
