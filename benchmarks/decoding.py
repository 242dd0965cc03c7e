"""Our sifters of image files beside Pillow with a probe of the size: mutants, bombs, and the cost.

    python benchmarks/decoding.py [--mutants 20000] [--seed 1]

The probe is what an ordinary program has: Pillow (and pillow-heif) opens a file lazily, a size above the
bound is refused, any exception is a refusal. Both read the mutants of tests/endurance in child processes with
the same bounds of time and memory, and the files of tests/images that are made to take long.
"""

import argparse
import io
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / part) for part in ("endurance", "images", "")]
MOST = 60  # processor seconds for a file that takes long

import mutants  # noqa: E402
from PIL import Image  # noqa: E402

from sfumato import images  # noqa: E402


def probe(data: bytes) -> np.ndarray:
    """Read a file by Pillow, unless it states too many pixels."""
    with Image.open(io.BytesIO(data)) as picture:
        if picture.width * picture.height > mutants.PIXELS:
            raise ValueError("too many pixels")
        return np.asarray(picture.convert("RGB"))


def outcome(data: bytes) -> str:
    """For mutants.child, in place of images.read."""
    try:
        probe(data)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    return "read"


def count(script: str, seed: int, mutations: int) -> Counter[str]:
    """Read mutants in as many children as it takes; count what became of them."""
    counts: Counter[str] = Counter()
    index = 0
    while index < mutations:
        words = [sys.executable, script, *map(str, (seed, index, mutations))]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        if process.returncode > 0:
            raise RuntimeError(process.stderr)
        counts["lines printed by a decoder"] += len(process.stderr.splitlines())
        lines = process.stdout.splitlines()
        for line in lines[1::2]:
            result = line.split('"')[1]
            counts[result if result.startswith("FAILED") else result.partition(":")[0]] += 1
        if len(lines) % 2:
            counts[f"ended by {signal.Signals(-process.returncode).name}"] += 1
        index += (len(lines) + 1) // 2
    return counts


def try_bomb(name: str, reader: str) -> None:
    """Print what a reader makes of a file that takes long: outcome, processor seconds, megabytes."""
    from test_images import SLOW

    data, mutants.PIXELS = SLOW[name][0](), 64_000_000
    resource.setrlimit(resource.RLIMIT_CPU, (MOST, MOST))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = (mutants.outcome if reader == "sifters" else outcome)(data).partition(":")[0]
    used = time.process_time() - began
    print(
        json.dumps(
            [result, round(used, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10]
        )
    )


def bombs() -> None:
    """Print the files that take either reader over a second of the processor."""
    from test_images import SLOW

    for name in SLOW:
        said = {}
        for reader in ("sifters", "probe"):
            words = [sys.executable, "-W", "ignore", __file__, name, reader]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            said[reader] = json.loads(done.stdout) if not done.returncode else ["not ended", MOST, 0]
        if max(seconds for _, seconds, _ in said.values()) > 1:
            lines = (f"{reader} {r}, {s} s, {mb} MB" for reader, (r, s, mb) in said.items())
            print(f"{name}: {'; '.join(lines)}", flush=True)


def milliseconds(read: object, data: bytes) -> float:
    """The quickest of seven."""
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter()
        read(data)  # type: ignore[operator]
        best = min(best, time.perf_counter() - began)
    return 1000 * best


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, script in (("sifters", mutants.__file__), ("probe", __file__)):
        print(f"{name}: {dict(count(script, arguments.seed, arguments.mutants))}", flush=True)
    bombs()
    dice = np.random.default_rng(arguments.seed)
    for side in (84, 640, 2600):
        picture = Image.fromarray(dice.integers(0, 256, (side // 4, side // 4, 3), np.uint8)).resize(
            (side, side)
        )
        for kind, options in (("JPEG", {"quality": 90}), ("PNG", {})):
            buffer = io.BytesIO()
            picture.save(buffer, kind, **options)
            ours, theirs = (milliseconds(each, buffer.getvalue()) for each in (images.read, probe))
            print(f"{kind} {side}: sifters {ours:.2f} ms, probe {theirs:.2f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [seed, begin, end] if seed.isdigit():
            mutants.outcome = outcome
            mutants.child(int(seed), int(begin), int(end))
        case [name, "sifters" | "probe" as reader]:
            try_bomb(name, reader)
        case _:
            main()
