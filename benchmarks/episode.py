"""A training episode against the bare forward and backward pass, and what precision and layout gain.

    python benchmarks/episode.py

An episode draws classes and images, protects them, moves them to the networks, computes the joint loss,
and takes a step of Adam. The bare pass runs the same networks on the same tensors, ready made. At most 1.10.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch

from sfumato import data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler
from sfumato.learn import few_shot
from sfumato.networks import Conv4
from sfumato.precision import autocast, resolve
from sfumato.protect import parse

LIMIT = 1.10
ROUNDS = 27  # of which the first two warm up


def pairs(one: Callable[[], None], other: Callable[[], None]) -> tuple[float, float, float]:
    """Milliseconds of two functions run in turn, and their ratio: the medians over all rounds.

    The ratio is that of each round, so that a machine that is slower for a while slows both.
    """
    rounds = []
    for _ in range(ROUNDS):
        times = []
        for function in (one, other):
            start = time.perf_counter()
            function()
            times.append(1e3 * (time.perf_counter() - start))
        rounds.append((*times, times[0] / times[1]))
    ours, theirs, ratio = (median(values) for values in zip(*rounds[2:], strict=True))
    return ours, theirs, ratio


def episode(spec: str, depth: int | None, way: int) -> None:
    glyphs = data.load("glyphs", classes=100)
    config = replace(few_shot.FS_PIC_OMNIGLOT, way=way, denoiser_depth=depth)
    protection = parse(spec)
    model = few_shot.untrained(1, config, [protection])
    run = few_shot.Training(model, config)
    sampler = Sampler(glyphs.label("class"), config.episode)
    order, noise = torch.Generator().manual_seed(0), seeded_noise(0)
    run.start_epoch()

    def whole() -> None:
        images = glyphs.images[sampler.draw(1, order).flatten()]
        run.step(images, protection.release(images, noise).images())

    images = model.seen(glyphs.images[sampler.draw(1, order).flatten()])
    places = torch.zeros(len(images), 0)

    def bare() -> None:
        denoised, embeddings = model(images, places)
        (embeddings.sum() + denoised.sum()).backward()
        model.zero_grad(set_to_none=True)

    ours, limit, ratio = pairs(whole, bare)
    verdict = "kept" if ratio <= LIMIT else "NOT kept"
    networks = "Conv-4" if depth is None else f"DnCNN-{depth} + Conv-4"
    print(
        f"{spec:24s} {networks:16s} {way}-way: episode {ours:6.1f} ms, bare {limit:6.1f} ms, "
        f"ratio {ratio:4.2f} (at most {LIMIT}: {verdict})"
    )


def precision() -> None:
    """One forward and backward pass of Conv-4 on 600 images, four ways."""
    images = torch.rand(600, 1, 28, 28)
    for layout in (torch.contiguous_format, torch.channels_last):
        network = Conv4(1).to(memory_format=layout)
        batch = images.contiguous(memory_format=layout)

        def one_pass(kind: str, network: Conv4 = network, batch: torch.Tensor = batch) -> None:
            with autocast(kind, batch.device):
                embeddings = network(batch)
            embeddings.float().sum().backward()

        full, half, gain = pairs(lambda: one_pass("float32"), lambda: one_pass("bfloat16"))
        print(f"Conv-4, 600 images, {layout}: float32 {full:6.1f} ms, bfloat16 {half:6.1f} ms, {gain:4.2f}x")


def main() -> None:
    print(f"{torch.get_num_threads()} threads, precision {resolve('auto')}")
    for spec in ("none", "blur:radius=2", "pixelize:cell=4", "gaussian:sigma=80", "dp-pix:cell=4,epsilon=3"):
        episode(spec, None, 60)
    episode("gaussian:sigma=80", 8, 20)
    precision()


if __name__ == "__main__":
    main()
