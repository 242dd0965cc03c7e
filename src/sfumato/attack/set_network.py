"""Name people by the mean embeddings of sets (Zaheer et al. 2017), trained on other people; see `sets`."""

import itertools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack.sets import Linker, Panels, Scores, by_distance, sets
from sfumato.networks.weights import initial_weights

_WIDTH, _EMBEDDED, _STEPS, _RATE, _BATCH = 64, 32, 150, 3e-3, 48


def by_network(shown: Panels, *, seed: int) -> Linker:
    """Score by a small network on sets, trained on other people to put two sets of one near each other."""
    generator = torch.Generator().manual_seed(seed)
    others = torch.from_numpy(shown.others)
    spread, mean = torch.std_mean(others, 0)
    with initial_weights(seed):
        width = nn.Linear(others.shape[1], _WIDTH)
        each = nn.Sequential(width, nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
        last = nn.Linear(_WIDTH, _EMBEDDED)
    rows = _two_sides(torch.from_numpy(shown.of_others), generator)  # (2, O, H)
    values = (others - mean) / spread.clamp(min=1e-3)
    optimiser = torch.optim.Adam([*each.parameters(), *last.parameters()], lr=_RATE)
    for _ in range(_STEPS):
        some = torch.randperm(rows.shape[1], generator=generator)[:_BATCH]
        size = int(torch.randint(1, rows.shape[2] + 1, (), generator=generator))
        columns = torch.randint(rows.shape[2], (2, len(some), size), generator=generator)
        of_both = rows[:, some].gather(2, columns)  # (2, S, n)
        first, second = last(each(values[of_both]).mean(2))
        loss = functional.cross_entropy(-torch.cdist(first, second).square(), torch.arange(len(some)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    @torch.no_grad()
    def embed(releases: np.ndarray) -> np.ndarray:
        """(B, P, G, n, d) -> (B, P, G, e)."""
        scaled = (torch.from_numpy(releases) - mean) / spread.clamp(min=1e-3)
        embedded: np.ndarray = last(each(scaled).mean(-2)).numpy()
        return embedded

    def of(gallery: np.ndarray) -> Scores:
        known = embed(gallery)
        return lambda size: by_distance(embed(sets(shown.probes, size)), known)

    return of


def _two_sides(people: Tensor, draw: torch.Generator) -> Tensor:
    """Split rows of the releases of each person who has two into halves, some twice. (M,) -> (2, O, H)."""
    every = [(people == code).nonzero().flatten() for code in people.unique()]
    shuffled = [rows[torch.randperm(len(rows), generator=draw)] for rows in every if len(rows) > 1]
    halves = [rows.split((len(rows) + 1) // 2) for rows in shuffled]
    longest = max(len(part) for part in itertools.chain(*halves))
    places = torch.arange(longest)
    sides = [[pair[side][places % len(pair[side])] for pair in halves] for side in (0, 1)]
    return torch.stack(list(map(torch.stack, sides)))
