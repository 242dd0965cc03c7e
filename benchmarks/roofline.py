"""What this machine can do, and how near to it the main jobs come.

    python benchmarks/roofline.py [--only NAME ...] [--out FILE]

Measured first, in the same run: matrix products in float32, bfloat16 and float64, copies of memory that fit
the cache of a core, the shared cache, and neither, random bytes of the system, and decoding and encoding.

Then each job once under a counter that sees all of PyTorch's operations, forward and backward: the operations
of its products and convolutions (torch.utils.flop_counter), and the bytes of all tensors that each operation
reads and writes. No operation can take less than either at the measured rate, of its own type and for tensors
of its own size; their sum, with random bytes and codecs at theirs, is the bound of the job. Views are free,
and what is fused counts the tensors that it really has. What is no operation of PyTorch (Pillow, NumPy)
counts the bytes that go in and come out, once. A fraction of 1 is all that the machine can do.

Rates are the best of several, so that other work on the machine makes fractions smaller and never larger than
they are. Threads are torch's: the peaks of one thread are measured, too.
"""

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import folder as folders
import numpy as np
import torch
from PIL import Image
from timing import clock_for, record, short, write
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from sfumato import data, images
from sfumato.base import memory
from sfumato.dp.mechanisms import fresh_noise
from sfumato.protect import parse

RUNS = Path("runs/roofline.json")
TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float64: "float64"}
# Bytes of a copy that stays in the cache of a core, in the shared one, and in none.
SIZES = {"core's cache": 1 << 18, "shared cache": 1 << 23, "memory": 1 << 28}
Work = Callable[[], object]


def best(work: Work, *, waits: bool = False) -> float:
    """The least seconds of a call; `waits`: see timing.clock_for."""
    clock = clock_for(waits)
    work()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < 1:
        start = clock()
        work()
        taken.append(clock() - start)
    return min(taken)


@dataclass(frozen=True)
class Machine:
    """Rates a second: operations of products, bytes copied (read and written), and bytes of the others.

    Decoding and encoding count the bytes of pixels; images are JPEGs in and PNGs of cells out.
    """

    products: dict[str, float]  # by type
    one_thread: dict[str, float]
    copies: dict[str, float]  # by place
    random: float
    decode: float
    encode: float

    def operation(self, kind: torch.dtype | None, flops: float, moved: float, held: float) -> float:
        """The least seconds of an operation on tensors that together have so many bytes."""
        place = next((name for name, size in SIZES.items() if held <= 2 * size), "memory")
        products = self.products.get(TYPES.get(kind, ""), self.products["float32"])
        return max(flops / products, moved / self.copies[place])


def photograph(side: int) -> tuple[bytes, int]:
    """A JPEG, and the bytes of its pixels."""
    picture = folders.photograph(np.random.default_rng(0), side)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=90)
    return out.getvalue(), 3 * side * side


def products(kind: torch.dtype) -> float:
    side = 1024 if kind == torch.float64 else 2048
    first, second = (torch.randn(side, side).to(kind) for _ in range(2))
    return 2 * side**3 / best(lambda: first @ second)


def copies(size: int) -> float:
    source, target = torch.ones(size // 8), torch.empty(size // 8)  # 4 bytes each, and there are two
    calls = max(1, SIZES["memory"] // size // 8)

    def work() -> None:
        for _ in range(calls):
            target.copy_(source)

    return size * calls / best(work)


def random_rate() -> float:
    """As exact noise asks for them: by as many threads as torch has, a MiB at a time."""
    threads = torch.get_num_threads()
    if threads == 1:
        return (1 << 20) / best(lambda: os.urandom(1 << 20))
    with ThreadPoolExecutor(threads) as pool:
        return threads * (1 << 24) / best(lambda: list(pool.map(os.urandom, [1 << 20] * 16 * threads)))


def measure() -> Machine:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = {name: products(kind) for kind, name in TYPES.items()}
    torch.set_num_threads(threads)
    encoded, pixels = photograph(1024)
    cells = parse("pixelize:cell=8").release(images.read(encoded)[None], fresh_noise()).images()[0]
    return Machine(
        products={name: products(kind) for kind, name in TYPES.items()},
        one_thread=alone,
        copies={name: copies(size) for name, size in SIZES.items()},
        random=random_rate(),
        decode=pixels / best(lambda: np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))),
        encode=pixels / best(lambda: images.encode(cells, "PNG")),
    )


class Watched(TorchDispatchMode):
    """Counts all that PyTorch does within, but views, one operation after the other."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        if func.is_view or not made:
            return out
        # Several names of one memory are one; expanded tensors have the bytes that they stand on.
        held = {each.untyped_storage().data_ptr(): bytes_of(each) for each in [*read, *made]}
        flops = flops_of(func, args, kwargs or {}, out)
        self.count(func, read, made, flops=flops, moved=float(sum(held.values())))
        return out

    def count(
        self, func: Any, read: Sequence[Tensor], made: Sequence[Tensor], *, flops: float, moved: float
    ) -> None:
        """One operation, the tensors that it read and made, and the bytes of both."""
        raise NotImplementedError


class Counted(Watched):
    """Operations, bytes and the bound of all that PyTorch does within. State: these, which grow."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.flops, self.moved, self.bound = 0.0, 0.0, 0.0

    def count(
        self, func: Any, read: Sequence[Tensor], made: Sequence[Tensor], *, flops: float, moved: float
    ) -> None:
        self.flops += flops
        self.moved += moved
        self.bound += self._machine.operation(made[0].dtype, flops, moved, moved)


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """As torch.utils.flop_counter, but for grouped convolutions, whose backward pass that counts too high."""
    operation = func._overloadpacket
    if operation is torch.ops.aten.convolution:
        image, weight, transposed = args[0], args[1], args[6]
        return 2.0 * (image if transposed else out).numel() * weight[0].numel()
    if operation is torch.ops.aten.convolution_backward:
        slope, image, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
        forward = 2.0 * (image if transposed else slope).numel() * weight[0].numel()
        return forward * sum(wanted[:2])  # by the image and by the weight: each as much again
    counter = flop_registry.get(operation)
    return float(counter(*args, **kwargs, out_val=out)) if counter else 0.0


def bytes_of(tensor: Tensor) -> int:
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


@contextmanager
def random_bytes() -> Iterator[list[int]]:
    """How many bytes the system was asked for, each time."""
    asked: list[int] = []
    original = os.urandom

    def counted(count: int) -> bytes:
        asked.append(count)
        return original(count)

    os.urandom = counted
    try:
        yield asked
    finally:
        os.urandom = original


@dataclass(frozen=True)
class Job:
    """A piece of work, and what of it PyTorch does not see.

    Attributes:
        work: it.
        moved: bytes that go in and come out.
        decoded, encoded: bytes of pixels.
        waits: see timing.clock_for.
        kept: whether freed memory is kept, as trainings do.
    """

    work: Work
    moved: int = 0
    decoded: int = 0
    encoded: int = 0
    waits: bool = False
    kept: bool = False


def _protection(spec: str) -> Callable[[Path], Job]:
    def make(_: Path) -> Job:
        batch = torch.randint(0, 256, (512, 3, 84, 84), dtype=torch.uint8)
        protection, noise = parse(spec), fresh_noise()
        released = protection.release(batch, noise)
        return Job(
            lambda: protection.release(batch, noise),
            moved=batch.numel() + len(batch) * released.bytes_per_image,
        )

    return make


def _folder(place: Path) -> Job:
    from sfumato.base.engines import EngineConfig
    from sfumato.device.jobs.folder import protect_folder

    count, side = 20, 1024
    folders.write_photographs(place / "source", count, side)
    numbers = iter(range(10**6))

    def work() -> None:
        own = place / str(next(numbers))
        protect_folder(
            place / "source",
            own / "out",
            parse("dp-pix:cell=8,epsilon=3"),
            own / "ledger" / "ledger.db",
            engine=EngineConfig(workers=1),
        )

    pixels = count * 3 * side * side
    return Job(work, decoded=pixels, encoded=pixels, waits=True)


def _few_shot(precision: str) -> Callable[[Path], Job]:
    from sfumato.learn import few_shot

    def make(_: Path) -> Job:
        config = replace(few_shot.FS_PIC_OMNIGLOT, denoiser_depth=None, precision=precision)
        glyphs, protection = data.load("glyphs", classes=60), parse("gaussian:sigma=80")
        _, step = few_shot.make_step(few_shot.make_untrained(1, config, protection), config)
        rows = (torch.arange(60)[:, None] * 20 + torch.arange(10)).flatten()
        clean = glyphs.images[rows]
        released = protection.release(clean, fresh_noise()).images()
        return Job(lambda: step([(clean, released, None)]), kept=True)

    return make


def _embed(_: Path) -> Job:
    from sfumato.learn import few_shot

    protection = parse("pixelize:cell=4")
    model = few_shot.make_untrained(3, replace(few_shot.FS_PIC_CELEBA, cell=1), protection)
    batch = torch.randint(0, 256, (32, 3, 84, 84), dtype=torch.uint8)
    return Job(lambda: model.embed(batch))


def _meta(precision: str) -> Callable[[Path], Job]:
    from sfumato.learn.adaptation import Learner, contributions
    from sfumato.learn.tasks import Inner, tasks_of
    from sfumato.networks import Convolutional

    def make(_: Path) -> Job:
        learner = Learner(Convolutional((1, 28, 28), 5), precision=precision)
        tasks = tasks_of(torch.rand(4, 5, 10, 1, 28, 28), 5)
        inner, start = Inner(algorithm="maml", rate=0.4), learner.initial()
        return Job(lambda: contributions(learner, start, tasks, inner), kept=True)

    return make


def _mask(_: Path) -> Job:
    from mask import IMAGES, SIDE, model_of

    from sfumato.data.labelled import Label, LabelledImages
    from sfumato.learn import adversarial_mask

    config = adversarial_mask.MaskConfig()
    batch = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=torch.uint8)
    codes = torch.arange(IMAGES) % 5
    noise = LabelledImages("noise", batch, {"class": Label(codes, tuple("abcde"))})
    run = adversarial_mask.Training(model_of(config, noise), config)
    run.start_epoch()
    return Job(lambda: run.predictor_step(batch, codes), kept=True)


def _inversion(_: Path) -> Job:
    from inversion import LABELS, SHAPE, VICTIMS, attack, share

    model = VICTIMS["ResNet-20"][0]
    shared = share(model, torch.rand(1, *SHAPE), LABELS)
    return Job(lambda: attack(model, shared, 4, 16, 16))


def _log_rank(_: Path) -> Job:
    from log_rank import density_log_posteriors, judge, world

    train, identities, test, truth = world(0.1)
    return Job(lambda: judge(density_log_posteriors(train, identities, test), truth))


def _frechet(_: Path) -> Job:
    from sfumato.assess.frechet import frechet_distance

    first, second = torch.randn(600, 2048), torch.randn(600, 2048)
    return Job(lambda: frechet_distance(first, second))


def _ssim(_: Path) -> Job:
    from sfumato.assess.similarity import ssim

    first, second = torch.rand(64, 3, 84, 84), torch.rand(64, 3, 84, 84)
    return Job(lambda: ssim(first, second))


JOBS: dict[str, Callable[[Path], Job]] = {
    "pixelize:cell=4": _protection("pixelize:cell=4"),
    "blur:radius=3": _protection("blur:radius=3"),
    "gaussian:sigma=80": _protection("gaussian:sigma=80"),
    "dp-pix:cell=4,epsilon=3": _protection("dp-pix:cell=4,epsilon=3"),
    "folder": _folder,
    "few-shot-step": _few_shot("auto"),
    "few-shot-step-float32": _few_shot("float32"),
    "embed": _embed,
    "meta-step": _meta("auto"),
    "meta-step-float32": _meta("float32"),
    "mask-step": _mask,
    "inversion": _inversion,
    "log-rank": _log_rank,
    "frechet": _frechet,
    "ssim": _ssim,
}


def fraction(machine: Machine, name: str) -> dict[str, Any]:
    """A job beside its bound."""
    with tempfile.TemporaryDirectory() as place:
        job = JOBS[name](Path(place))
        with memory.keep_freed() if job.kept else nullcontext():
            seconds = best(job.work, waits=job.waits)
        with random_bytes() as asked, Counted(machine) as counted:
            job.work()
    bounds = {
        "operations of PyTorch": counted.bound,
        "bytes in and out": job.moved / machine.copies["memory"],
        "random bytes": sum(asked) / machine.random,
        "codecs": job.decoded / machine.decode + job.encoded / machine.encode,
    }
    return {
        "name": name,
        "seconds": seconds,
        "flops": counted.flops,
        "bytes": counted.moved + job.moved,
        "random bytes": sum(asked),
        "bounds": bounds,
        "bound": sum(bounds.values()),
        "fraction": sum(bounds.values()) / seconds,
        "limited by": max(bounds, key=lambda each: bounds[each]),
    }


def told(found: dict[str, Any]) -> str:
    seconds = found["seconds"]
    return (
        f"{found['name']:24s} {short(1e3 * seconds):>8s} ms  {short(found['flops'] / 1e9):>7s} GFLOP "
        f"{short(found['flops'] / seconds / 1e9):>7s} GFLOP/s  {short(found['bytes'] / 1e9):>7s} GB "
        f"{short(found['bytes'] / seconds / 1e9):>6s} GB/s  bound {short(1e3 * found['bound']):>7s} ms "
        f"{found['fraction']:4.0%}  {found['limited by']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=RUNS, help="JSON")
    options = parser.parse_args()
    began = time.perf_counter()
    torch.manual_seed(0)
    machine = measure()
    print(f"{torch.get_num_threads()} threads; products in GFLOP/s, on all threads and on one:")
    for kind, rate in machine.products.items():
        print(f"  {kind:10s} {short(rate / 1e9):>7s} {short(machine.one_thread[kind] / 1e9):>7s}")
    print("read and written by a copy in GB/s:")
    for place, rate in machine.copies.items():
        print(f"  {place:14s} {short(rate / 1e9):>6s}")
    print(
        f"random bytes {short(machine.random / 1e6)} MB/s; of pixels, decoding JPEG "
        f"{short(machine.decode / 1e6)} MB/s and encoding PNG {short(machine.encode / 1e6)} MB/s"
    )
    found = []
    for name in options.only:
        found.append(fraction(machine, name))
        print(told(found[-1]), flush=True)
    content = {"measured": asdict(machine), "jobs": found}
    write(options.out, record(content, seconds=time.perf_counter() - began))
    print(f"kept as {options.out}")


if __name__ == "__main__":
    main()
