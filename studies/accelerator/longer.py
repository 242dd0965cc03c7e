"""FS-PIC on photographs at the paper's epsilon, three times as long, since validation still rose at the end.

    studies/accelerator/run.sh OUT --only longer

LFW alone, as studies/accelerator/photographs.py has it, with three times as many episodes, after which the learning rate is
halved as late. The cells that the denoiser was to help most come first.
"""

from dataclasses import replace
from itertools import product

from photographs import SEEDS, task_of, unpack_data, work
from pool import Task, options, run

TIMES = 3
CELLS = (4, 6, 2, 8, 10)


def tasks() -> list[Task]:
    """Both models of each cell."""
    found = []
    for cell, seed, learner in product(CELLS, SEEDS, ("denoised", "protected")):
        task = task_of(f"dp-pix:cell={cell},epsilon=3,variant=published", learner, "lfw", seed)
        settings = task.settings | {"longer": TIMES}
        found.append(replace(task, name=f"{task.name}, {TIMES} times as long", settings=settings))
    return found


if __name__ == "__main__":
    given = options(__doc__)
    unpack_data("lfw", given)
    raise SystemExit(run("longer", tasks(), work, given))
