"""Settings of private meta-training that validation classes decide: these are public, and cost no budget.

    python studies/meta_choice.py                  # all of them: some half an hour on one core
    python studies/meta_choice.py --only objects-norm

MAML, 1-shot, seed 0, at the first budget of `studies/meta.py`; training and its noise are as there. Records are
studies/results/meta-choice.jsonl, and a value that has one is not tried again. Those of the noise of a tree, of means
over steps and of group norm are of commit 5a5f5a86, the last with these settings.
"""

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

from meta import BUDGETS, EPISODES, QUERIES, Run, asked_world, loaded_world, private
from rows import RESULTS, Rows

import sfumato
from sfumato import protect
from sfumato.learn import meta

RECORDS = Rows(RESULTS / "meta-choice.jsonl")


@dataclass(frozen=True)
class Choice:
    """A setting of a policy that validation classes decide.

    Attributes:
        regime, policy: of the runs; MAML, 1-shot, the first budget, seed 0.
        setting: its name, in MetaConfig or among the clipping's settings.
        values: to choose from.
    """

    regime: str
    policy: str
    setting: str
    values: tuple[float | str, ...]

    def run(self, value: float | str) -> Run:
        """With this value."""
        run = private(self.regime, "maml", 1, BUDGETS[0], self.policy, 0)
        promised = run.config.private
        assert promised is not None
        if self.setting in promised.settings:
            changed: dict[str, Any] = {"private": replace(promised, settings={self.setting: float(value)})}
        else:
            changed = {self.setting: value}
        return replace(run, config=replace(run.config, **changed))


CHOICES = {
    "objects-norm": Choice("objects", "fixed", "clipping_norm", (0.3, 1.0)),
}


def choose(name: str) -> None:
    """Train with each value, test on validation classes, and write the record."""
    choice = CHOICES[name]
    record = RECORDS.get(name, {"accuracies": {}})
    for value in choice.values:
        if str(value) in record["accuracies"]:
            continue
        run = choice.run(value)
        begun = time.perf_counter()
        model = meta.train(
            loaded_world(run.world, run.side, run.rotations).split("train"),
            protect.parse("none"),
            run.config,
            seed=run.seed,
        )
        seconds = time.perf_counter() - begun
        asked = asked_world(run).split("validation")
        tested = meta.evaluate(model, asked, queries=QUERIES, episodes=EPISODES, seed=run.seed)
        record |= {"regime": choice.regime, "policy": choice.policy, "setting": choice.setting}
        record |= {"version": sfumato.__version__, "seconds": round(record.get("seconds", 0) + seconds, 1)}
        record["accuracies"][str(value)] = tested.mean
        RECORDS[name] = record
        print(f"{name}={value}: {tested}", flush=True)


def main() -> None:
    """Try what has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--only", default="", help="of choices whose names have this in them")
    options = asked.parse_args()
    for name in CHOICES:
        if options.only in name:
            choose(name)


if __name__ == "__main__":
    main()
