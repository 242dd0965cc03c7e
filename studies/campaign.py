"""A campaign for people: 200 pairs of originals and reconstructions, and what their answers say of measures.

    python studies/reconstruction.py lfw omniglot fer     # first: the reconstructions that are shown
    python studies/campaign.py prepare                    # the campaign, its links and its instructions: a minute
    sfumato annotate serve runs/campaign/people.campaign  # people answer, 20 minutes each
    python studies/campaign.py tables                     # after that: train on their answers, and correlate

Of each data set eight victims are asked about, from the nearest to the farthest by SqueezeNet's distance, so that all
strengths of leaking come up; a person sees an original beside a reconstruction, and one pair in five does not belong
together. What is drawn depends on a seed alone, and on no judge: people's answers are a test of judges, too.

`tables` exports the answers, trains semsim-perceptual on those about the other data sets, each left out in turn, and
ranks the victims of each by every measure and by people. The record is studies/results/people.jsonl, "campaign".
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from reconstructed import recognisers
from reconstructed.judged import originals_of, pairs_of, perceptual
from reconstructed.learned import present, record_of
from reconstructed.sources import RECORDS, RUNS, SEED, SQUEEZENET
from rows import RESULTS, Rows

from sfumato import images
from sfumato.annotate import CampaignConfig, Pair, Store, create, draw_balanced, results
from sfumato.annotate.campaign import SAME
from sfumato.assess import agreement, similarity
from sfumato.assess.semsim import PerceptualSemSim
from sfumato.errors import DataError
from sfumato.learn import semsim
from sfumato.learn.semsim import perceptual as stages
from sfumato.learn.semsim.perceptual import PerceptualConfig

OUT = Path("runs/campaign")
OF_PEOPLE = Rows(RESULTS / "people.jsonl")
PAIRS, STRENGTHS, ANNOTATORS, DECOYS = 200, 8, 5, 0.2
SEEDS = (0, 1, 2)
LEARNED = "semsim-perceptual, of people"
INSTRUCTIONS = """# Ask people about {pairs} reconstructions

It takes an hour with {annotators} people: 20 minutes of answers each, at 5 seconds a pair, and time to begin.

1. Serve the page: `sfumato annotate serve {campaign}`. It prints a link for each person, and one for you. People on
   other machines of a network that you trust reach it with `--host 0.0.0.0`.
2. Give each person a link of their own. Tell them this, and no more:
   - You see two pictures, an original and an attempt to rebuild it from what a program shared. Both are small.
   - Say "same" if the second still shows what the first shows: the same person, face or character.
   - Say "different" if it shows something else, and "cannot tell" if you see nothing in it. Do not guess.
   - Some pictures do not belong together. Nobody is right in all of them.
   - Every answer is saved at once. You may pause, and take answers back with U.
3. Photographs show people of public data sets (LFW, FER2013). Tell this beforehand; who does not want to look at
   faces does not take part. No name of an annotator is kept.
4. See how far they are, and who fails the pairs that do not belong together, on your own page of the link "status".
5. Afterwards: `python studies/campaign.py tables`. It exports the answers, trains on them, and writes the record.
   By hand: `sfumato annotate export {campaign} judged.csv --table semsim` and
   `sfumato train semsim-perceptual --judgements judged.csv --squeezenet WEIGHTS --out people.safetensors`.
"""


def spread(name: str, records: Rows) -> list[tuple[str, str]]:
    """Attack and victim of eight strengths, evenly from the least to the greatest mean of SqueezeNet's distance."""
    scored = sorted(
        (each["scores"]["squeezenet"], attack, victim)
        for attack in present([name], records)
        for victim, each in record_of(name, attack, records)["victims"].items()
    )
    places = {round(at * (len(scored) - 1) / (STRENGTHS - 1)) for at in range(STRENGTHS)}
    return [scored[place][1:] for place in sorted(places)]


def prepare(names: Sequence[str], out: Path, records: Rows, runs: Path, *, pairs: int = PAIRS) -> Path:
    """Draw the pairs and write the campaign, with instructions beside it. -> the campaign."""
    available: list[Pair] = []
    for name in names:
        originals = originals_of(name, records)
        for attack, victim in spread(name, records):
            available += pairs_of(name, attack, [victim], originals, runs)
    out.mkdir(parents=True, exist_ok=True)
    campaign = out / "people.campaign"
    config = CampaignConfig(task=SAME, annotators=ANNOTATORS, decoys=DECOYS, seed=SEED)
    create(campaign, draw_balanced(available, pairs, seed=SEED), config)
    words = INSTRUCTIONS.format(pairs=pairs, annotators=ANNOTATORS, campaign=campaign)
    (out / "instructions.md").write_text(words, encoding="utf-8")
    return campaign


def tables(
    campaign: Path, *, backbone: Path = SQUEEZENET, config: PerceptualConfig | None = None
) -> dict[str, Any]:
    """Export the answers beside the campaign, train on them, and rank victims by every measure and by people."""
    with Store(campaign) as store:
        for table in ("results", "semsim"):
            results.export(store, table, campaign.parent / f"people-{table}.csv")
        found = [each for each in results.results(store) if each.recognised is not None]
        alpha, kind = results.agreement(store), store.kind
        reliable = [asdict(each) for each in results.reliability(store)]
    if not found:
        raise DataError(f"{campaign}: nobody has answered yet: serve it first, see instructions.md beside it")
    judged = semsim.read(campaign.parent / "people-semsim.csv", size=(config or PerceptualConfig()).size)
    rows = {}
    for source in sorted({each.source for each in found}):
        mine = [each for each in found if each.source == source]
        scores = {name: [values] for name, values in hand_made(mine).items()}
        rest = [each for name, each in judged.items() if name.partition(" (")[0] != source]
        if rest:
            scores[LEARNED] = [
                of_people(rest, mine, seed, backbone, config or PerceptualConfig()) for seed in SEEDS
            ]
        rows[source] = _row(mine, scores)
    return {
        "annotators": kind,
        "krippendorff_alpha": alpha,
        "reliability_on_decoys": reliable,
        "sources": rows,
    }


def hand_made(asked: Sequence[results.Result]) -> dict[str, list[float]]:
    """Measures of each pair, turned so that they rise with what leaks."""
    found: dict[str, list[float]] = defaultdict(list)
    for each in asked:
        original, other = (
            images.to_float(images.read(path, channels=3)[None])
            for path in (each.original, each.reconstruction)
        )
        found["psnr"].append(similarity.psnr(original, other).clamp(max=100).item())
        found["mse"].append(-similarity.mse(original, other).item())
        found["ssim"].append(similarity.ssim(original, other).item())
        found["squeezenet"].append(-perceptual().distance(original, other).item())
    return dict(found)


def of_people(
    known: Sequence[semsim.Judgements],
    asked: Sequence[results.Result],
    seed: int,
    backbone: Path,
    config: PerceptualConfig,
) -> list[float]:
    """The probability of each pair, by what people said of other data sets."""
    trained = stages.train(semsim.combine(known, size=config.size), config, backbone=backbone, seed=seed)
    model = PerceptualSemSim(trained.distance, card=trained.card)
    both = [
        images.to_float(torch.stack([images.read(getattr(each, side), channels=3) for each in asked]))
        for side in ("original", "reconstruction")
    ]
    return model.probability(*both).tolist()  # type: ignore[no-any-return]


def _row(asked: Sequence[results.Result], scores: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Of one data set: what people recognise of each victim, and how each measure ranks them."""
    victims = sorted({each.model for each in asked})
    of = {victim: [at for at, each in enumerate(asked) if each.model == victim] for victim in victims}
    shares = [sum(bool(asked[at].recognised) for at in rows) / len(rows) for rows in of.values()]
    measures = {
        name: [
            asdict(
                agreement.rank_correlations(
                    means, shares, generator=torch.Generator().manual_seed(SEED)
                ).kendall
            )
            for values in by_seed
            for means in [[sum(values[at] for at in rows) / len(rows) for rows in of.values()]]
        ]
        for name, by_seed in scores.items()
    }
    return {"recognised": dict(zip(victims, shares, strict=True)), "pairs": len(asked), "kendall": measures}


def main() -> None:
    """Prepare, or count."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("what", choices=("prepare", "tables"))
    options = asked.parse_args()
    campaign = OUT / "people.campaign"
    if options.what == "prepare":
        prepare(tuple(recognisers.admitted()), OUT, RECORDS, RUNS)
        print(f"campaign: {campaign}; read {OUT / 'instructions.md'} next")
        return
    record = tables(campaign)
    OF_PEOPLE["campaign"] = record
    for source, row in record["sources"].items():
        best = {name: max(each["value"] for each in found) for name, found in row["kendall"].items()}
        print(f"{source}: " + ", ".join(f"{name} {value:.2f}" for name, value in best.items()))


if __name__ == "__main__":
    main()
