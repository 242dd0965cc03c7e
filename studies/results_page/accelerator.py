"""Long studies on an accelerator: codes for many releases, of drawn people and on photographs; answers on photographs."""

import statistics
from dataclasses import dataclass
from typing import Any

from results_page.reading import Row, records
from sfumato.dp.naming import counting

PLAIN, BEST = "episodes alone, three times as long", "sets 100, pairs 5, three times as long"
BY_LIBRARY = (
    "the demo's",
    "the demo's, same_scenes=1",
    "the demo's, four times as long",
    "the demo's, same_scenes=1, four times as long",
    "twelve times as long as the demo's, same_scenes=1",
)
MORE_BY_LIBRARY = ("twelve times as long as the demo's", "12 bits, twelve times as long as the demo's")
CUT = (
    "aligned crops of hats, three times as long",
    "aligned crops of hats, sets 100, pairs 5, three times as long",
)
VIEWS = ("as it is", "balanced", "tracked")


@dataclass(frozen=True)
class Sent:
    """One way to send the codes of one training, in one world, over seeds."""

    training: str
    view: str
    seeds: list[Row]

    @property
    def accuracy(self) -> list[float]:
        """Seed by seed."""
        return [each.accuracy for each in self.seeds]

    def named(self, size: int, of: str = "share") -> list[float]:
        """From so many releases, seed by seed."""
        return [each.named[str(size)][of] for each in self.seeds]

    def words(self, size: int) -> str:
        """The mean over seeds, with half of the 95% interval over people of a seed, in %."""
        share, half = (statistics.mean(self.named(size, of)) for of in ("share", "half_width"))
        return f"{100 * share:.1f} ± {100 * half:.1f}"

    def range(self, size: int) -> str:
        """The least and the most of a seed, in %."""
        return f"{100 * min(self.named(size)):.1f} to {100 * max(self.named(size)):.1f}"

    def fewer(self, other: "Sent", size: int) -> bool:
        """Whether it names fewer people than another, by more than its interval."""
        shares, half, others = self.named(size), self.named(size, "half_width"), other.named(size)
        return statistics.mean(shares) + statistics.mean(half) < statistics.mean(others)

    def worst(self, size: int, of: str = "worst") -> float:
        """The most of a seed."""
        return max(self.named(size, of))


def sent(training: str, view: str = "as it is", world: int = 0) -> Sent:
    """Of one training and view."""
    own = [
        line
        for line in records("accelerator-releases")
        if (line.settings.name, line.settings.get("world", 0)) == (training, world)
    ]
    return Sent(training, view, [line.result.views[view] for line in own])


def many_releases() -> Row:
    """All trainings: `again` and what is named are of the other world, `trainings` of the first."""
    lines = records("accelerator-releases")
    names = names_of([line for line in lines if not line.settings.get("world", 0)])
    return Row(
        made_by=made_by(lines),
        sizes=(1, 10, 30, 100),
        plain=sent(PLAIN, world=1),
        best=sent(BEST, world=1),
        tracked=sent(BEST, "tracked", world=1),
        random=sent("random bits", world=1),
        by_library=[sent(name, world=1) for name in BY_LIBRARY],
        more_by_library=[sent(name, world=1) for name in MORE_BY_LIBRARY],
        cut=[sent(name, world=1) for name in CUT],
        by_name={name: sent(name) for name in names},
        again=[sent(name, view, world=1) for name in (PLAIN, BEST) for view in VIEWS],
        trainings=sorted(map(sent, names), key=lambda each: -statistics.mean(each.named(100))),
    )


def hats() -> Row:
    """Codes of hats on photographs: all trainings, and those of 16 bits that paste hats onto others' photographs."""
    lines = records("accelerator-hats")
    of = {name: [line for line in lines if line.settings.name == name] for name in names_of(lines)}
    sent = {name: Sent(name, "as it is", [line.result.views["as it is"] for line in of[name]]) for name in of}
    mask = "pasted by a learned mask"
    return Row(
        made_by=made_by(lines),
        plain=sent["episodes alone"],
        mask=sent[mask],
        pasting=[each for name, each in sent.items() if name.startswith("pasted")],
        trainings=list(sent.values()),
        regions=[line.result.regions for line in of[mask]],
    )


def answers() -> list[Row]:
    """Each task: the accuracy of each seed; and for each number of answers what is named, and what is proved of as many."""
    lines = records("accelerator-answers")
    found = []
    for target in dict.fromkeys(line.settings.target for line in lines):
        of = [line.result for line in lines if line.settings.target == target]
        points = []
        for size in of[0].named:
            proved = {
                among: {
                    assuming: counting(1 / among, outputs=2, releases=int(size), assuming=assuming).chance
                    for assuming in ("exchangeable", "shuffled")
                }
                for among in (of[0].panel, 1_000)
            }
            points.append(
                Row(
                    releases=int(size),
                    named=statistics.mean(each.named[size].share for each in of),
                    half_width=statistics.mean(each.named[size].half_width for each in of),
                    worst=max(each.named[size].worst for each in of),
                    largest=max(share[size] for each in of for share in each.by_adversary.values()),
                    proved=proved[of[0].panel]["exchangeable"],
                    reached=max(each.among[size] for each in of),
                    **{f"of_1000_{assuming}": chance for assuming, chance in proved[1_000].items()},
                )
            )
        right = [each.test.right / each.test.images for each in of]
        found.append(Row(target=target, accuracy=right, first=of[0], points=points))
    return found


def made_by(lines: list[Row]) -> Row:
    """On what, and by which versions: those of the first, and all cards."""
    cards = [line.made_by.device for line in lines if line.made_by.device != "processor"]
    return Row({**lines[0].made_by, "device": " and ".join(dict.fromkeys(cards))})


def names_of(lines: list[Row]) -> list[str]:
    """Of trainings, each once."""
    return list(dict.fromkeys(line.settings.name for line in lines))


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"many_releases": many_releases(), "hats_released": hats(), "answers_released": answers()}
