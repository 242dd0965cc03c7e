"""Prototypes of noisy codes on drawn faces: plain means, posterior means, and likelihoods in their place.

OMP_NUM_THREADS=1 python benchmarks/code_prototypes.py [--seed 0] [--episodes 1500]

Trains an encoder of 16 bits, without noise and through flips of 0.1 and 0.25, and one of 16 numbers of norm
1, through Gaussian noise of a variance of 1/16. Then names unseen headwear, 5-way, with 1, 5 or 20 shots a
class, or with any of them. Ten minutes of one core; accuracies in % with 95% intervals over episodes, and the
share of queries of enrolled classes that the refusal of training accepts.
"""

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sfumato import data
from sfumato.learn import code as codes
from sfumato.learn.code_prototypes import CodePrototypes, Spread
from sfumato.learn.gallery import hashes_of, order
from sfumato.learn.prototypes import prototype_logits
from sfumato.learn.refusal import Refusal
from sfumato.protect.code import Code

WAY, QUERIES, MOST = 5, 5, 20
HASHES = hashes_of([str(number) for number in range(WAY)])
SHOTS = ((1,), (5,), (20,), (1, 5, 20))
SETTINGS: tuple[dict[str, float], ...] = (
    {"bits": 16},
    {"bits": 16, "flip": 0.1},
    {"bits": 16, "flip": 0.25},
    {"numbers": 16, "norm": 1.0, "noise": 0.0625},
)


def episodes(
    classes: Sequence[Tensor], shots: Sequence[int], count: int, draw: torch.Generator
) -> Iterator[tuple[list[Tensor], list[int]]]:
    """The rows of five classes, the first for its support and the last for queries; and the shots of each."""
    for _ in range(count):
        own = torch.randperm(len(classes), generator=draw)[:WAY].tolist()
        rows = [classes[c][torch.randperm(len(classes[c]), generator=draw)] for c in own]
        yield rows, [shots[int(torch.randint(len(shots), (1,), generator=draw))] for _ in own]


def likelihoods(queries: Tensor, middles: Tensor, code: Code, made: CodePrototypes) -> Tensor:
    """(Q, D) unbiased bits, (N, D) posterior means -> (Q, N) log-likelihoods of the noisy bits."""
    left = 1 - 2 * (code.flip or 0)
    chances = (1 + left * middles.clamp(-0.999, 0.999)) / 2
    ones = (1 + left * queries) / 2
    return ones @ chances.log().mT + (1 - ones) @ (-chances).log1p().mT


def compare(
    made: CodePrototypes, refusal: Refusal, code: Code, vectors: Tensor, of: Tensor, count: int
) -> None:
    """Print a line for each number of shots."""
    classes = [rows for c in of.unique() if len(rows := (of == c).nonzero()[:, 0]) >= MOST + QUERIES]
    truth = np.repeat(np.arange(WAY), QUERIES)
    for shots in SHOTS:
        draw = torch.Generator().manual_seed(0)
        hits: dict[str, list[float]] = {"plain": [], "posterior": [], "likelihood": []}
        accepted: list[bool] = []
        for rows, counts in episodes(classes, shots, count, draw):
            means = torch.stack([vectors[r[:k]].mean(0) for r, k in zip(rows, counts, strict=True)])
            queries = torch.cat([vectors[r[-QUERIES:]] for r in rows])
            examples = np.array(counts)
            found, known = made.posterior(means.numpy(), examples * made.weight(code), examples)
            middles = torch.from_numpy(found)
            scores = {
                "plain": prototype_logits(queries, means),
                "posterior": prototype_logits(queries, middles),
            }
            if made.bits is not None:
                scores["likelihood"] = likelihoods(queries, middles, code, made)
            for name, logits in scores.items():
                asked = zip(queries.numpy(), -logits.numpy(), truth, strict=True)
                hits[name].append(float(np.mean([order(q, HASHES, d)[0] == own for q, d, own in asked])))
            squared, own = scores["posterior"].neg().min(1)
            accepted += [
                bool(refusal.accepts(np.array(distance), known[row].item()))
                for distance, row in zip(squared.tolist(), own.tolist(), strict=True)
            ]
        words = []
        for name, episode in hits.items():
            if episode:
                width = 1.96 * torch.tensor(episode).std().item() / math.sqrt(count)
                words.append(f"{name} {100 * sum(episode) / count:.1f} +- {100 * width:.1f}")
        print(f"  shots {shots}:", *words, f"accepted {100 * sum(accepted) / len(accepted):.1f}", sep="  ")


def main() -> None:
    """Train, and compare, one kind of codes after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=1500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    faces = data.load("faces", identities=240, headwear=160, size=32)
    for settings in SETTINGS:
        config = codes.CodeConfig(**settings, pretraining_epochs=4, epochs=10, halve_every=3)  # type: ignore[arg-type]
        model = codes.train(
            *(faces.split("train"), config),
            target="headwear",
            validation=faces.split("validation"),
            seed=options.seed,
        )
        code = Code("encoder", **settings)  # type: ignore[arg-type]
        known = model.card["prototypes"]
        made = CodePrototypes(config.bits, config.dimension, Spread(**known["spread"]))
        test = faces.split("test")
        with torch.no_grad():
            numbers = torch.cat([model.eval().numbers(part) for part in test.images.split(256)])
            noisy = codes.release_numbers(numbers, config, torch.Generator().manual_seed(options.seed))
        print(settings, known["spread"], known["refusal"])
        vectors = made.embed(noisy, code)
        refusal = Refusal.of_card(known["refusal"])
        assert refusal is not None, known["no_refusal"]
        compare(made, refusal, code, vectors, test.label("headwear").codes, options.episodes)


if __name__ == "__main__":
    main()
