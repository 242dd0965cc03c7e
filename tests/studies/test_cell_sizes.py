"""What the pages say of the size of cells, and of training that ended while validation still rose."""

import pytest
from results_page import cell_sizes, engine

from sfumato.study.records import parse


def studied(
    accuracies: dict[int, list[float]], curve: tuple[float, ...] = (), operations: int = 1
) -> engine.Study:
    """A study of DP-Pix: size of the cells -> accuracy, seed by seed."""
    records = [
        parse(
            {
                "kind": "accuracy",
                "digest": f"{cell}-{seed}",
                "cell": {"protection": f"dp-pix:cell={cell},epsilon=3", "seed": seed, "learner": "protected"},
                "seconds": 1.0,
                "result": {
                    "accuracy": accuracy,
                    "half_width": 0.01,
                    "episodes": 100,
                    "curve": curve and (curve[0] + cell / 100 + seed / 1000, *curve[1:]),
                    "operations": operations,
                },
            }
        )
        for cell, found in accuracies.items()
        for seed, accuracy in reversed(list(enumerate(found)))
    ]
    specs = ["none", *(f"dp-pix:cell={cell},epsilon=3" for cell in accuracies)]
    seeds = list(range(max(map(len, accuracies.values()))))
    return engine.Study("study", {"name": "study", "protections": specs, "seeds": seeds}, records)


def sizes(accuracies: dict[int, list[float]], **more) -> cell_sizes.Sizes:
    return cell_sizes.Sizes(studied(accuracies, **more), "dp-pix")


def test_accuracies_of_several_seeds_are_in_the_order_of_seeds():
    assert sizes({2: [0.8, 0.9, 0.7], 4: [0.6, 0.5, 0.4]}).values == {2: [0.8, 0.9, 0.7], 4: [0.6, 0.5, 0.4]}


@pytest.mark.parametrize(
    ("means", "best", "inside", "falls"),
    [
        ((0.9, 0.8, 0.7), 2, False, True),
        ((0.7, 0.9, 0.8), 4, True, False),
        ((0.7, 0.8, 0.9), 6, False, False),
        ((0.9, 0.7, 0.8), 2, False, False),
    ],
)
def test_the_best_size_is_that_of_the_highest_mean(means, best, inside, falls):
    found = sizes({cell: [mean - 0.01, mean + 0.01] for cell, mean in zip((2, 4, 6), means, strict=True)})
    assert (found.best, found.inside, found.falls, found.seeds) == (best, inside, falls, 2)


@pytest.mark.parametrize(
    ("curve", "rises"),
    [
        ((0.5, 0.6, 0.7, 0.8), True),
        ((0.5, 0.8, 0.80, 0.804), False),
        ((0.5, 0.6, 0.7, 0.70, 0.69, 0.71, 0.70, 0.708), False),  # 0.700 to 0.704
        ((0.5, 0.6, 0.7), None),
        ((), None),
    ],
)
def test_training_is_said_to_rise_by_more_than_half_a_point_over_its_last_quarter(curve, rises):
    found = sizes({2: [0.9], 4: [0.8]}, curve=curve)
    assert [engine.rises(each.curve) for row in found.rows.values() for each in row.values()] == [
        rises,
        rises,
    ]
    assert found.rising == ((0, 0) if rises is None else (2 * rises, 2))


def test_every_pixel_is_held_against_one_value_a_cell_in_the_same_seeds(
    monkeypatch: pytest.MonkeyPatch,
):
    done = {
        "omniglot-full": studied({2: [0.9], 4: [0.80], 6: [0.7]}, operations=12),
        "omniglot-dp-pix": studied({2: [0.8, 0.2, 0.2], 4: [0.79, 0.2, 0.2]}, operations=3),
    }
    monkeypatch.setattr(cell_sizes, "study", lambda name: done.get(name, studied({2: [0.5]})))
    found = cell_sizes.every_pixel("dp-pix", "Omniglot")
    assert [(each.cell, each.apart, each.operations) for each in found] == [(2, True, 4.0), (4, False, 4.0)]
    assert [each.gain for each in found] == pytest.approx([0.1, 0.01])
