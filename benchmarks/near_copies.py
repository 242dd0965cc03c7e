"""What it costs a ledger to know near copies: processor time for each image, with them and without.

OMP_NUM_THREADS=1 python benchmarks/near_copies.py
"""

import tempfile
import time
from pathlib import Path

import torch

from sfumato import data
from sfumato.device.jobs import releasing
from sfumato.device.ledger import Ledger
from sfumato.protect import parse

BATCH = 64


def main() -> None:
    """Release the same drawn faces by ledgers of both kinds, in turn."""
    torch.set_num_threads(1)
    faces = data.load("faces", size=84).images[:2048]
    protection = parse("dp-pix:cell=8,epsilon=3")
    for mode in ("ignore", "charge", "ignore", "charge"):
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
            ledger.set_near_copies(mode)
            begin = time.process_time()
            for part in faces.split(BATCH):
                releasing.release(protection, part, ledger)
            each = (time.process_time() - begin) / len(faces)
            print(f"near copies {mode:6} {1e6 * each:6.0f} us an image of 84x84x3, of {len(faces):,} faces")


if __name__ == "__main__":
    main()
