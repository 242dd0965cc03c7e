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
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reconstructed import recognisers
from reconstructed.judged import originals_of, pairs_of, perceptual
from reconstructed.learned import present, record_of
from reconstructed.sources import RECORDS, RUNS, SEED, SQUEEZENET
from rows import RESULTS, Rows

from sfumato.annotate import CampaignConfig, Pair, Store, create, draw_balanced, results
from sfumato.annotate.campaign import SAME
from sfumato.assess import beside_people
from sfumato.assess.beside_people import Judged
from sfumato.assess.pairs import PIXELS, Measure
from sfumato.assess.semsim import PerceptualSemSim
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
   By hand: `sfumato annotate export {campaign} judged.csv --table semsim`, `sfumato train semsim-perceptual
   --judgements judged.csv --squeezenet WEIGHTS --leave-out lfw --out people.safetensors`, and so on for each data
   set, and `sfumato assess agreement judged.csv --squeezenet WEIGHTS --semsim people.safetensors`.
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
        alpha, kind = results.agreement(store), store.kind
        reliable = [asdict(each) for each in results.reliability(store)]
    chosen, table = config or PerceptualConfig(), campaign.parent / "people-semsim.csv"
    judged, _ = beside_people.read(table)
    scores = beside_people.scores(judged, [*PIXELS, Measure("squeezenet", "", perceptual().distance, -1)])
    known = semsim.read(table, size=chosen.size)
    for seed in SEEDS:
        scores[f"{LEARNED}, seed {seed}"] = of_people(known, judged, seed, backbone, chosen)
    ranked = beside_people.rank(judged, scores, seed=SEED)
    return {
        "annotators": kind,
        "krippendorff_alpha": alpha,
        "reliability_on_decoys": reliable,
        "sources": {source: asdict(each) for source, each in ranked.items()},
    }


def of_people(
    known: dict[str, semsim.Judgements],
    judged: Sequence[Judged],
    seed: int,
    backbone: Path,
    config: PerceptualConfig,
) -> list[float]:
    """The probability of each pair, by what people said of the other data sets; NaN if there are none."""
    values = [math.nan] * len(judged)
    for source in known if len(known) > 1 else ():
        rest = semsim.combine([each for name, each in known.items() if name != source], size=config.size)
        trained = stages.train(rest, config, backbone=backbone, seed=seed)
        model = PerceptualSemSim(trained.distance, card=trained.card)
        mine = [row for row, each in enumerate(judged) if each.source == source]
        by = Measure(LEARNED, "", model.probability, 1)
        for row, value in zip(
            mine, beside_people.scores([judged[row] for row in mine], [by])[LEARNED], strict=True
        ):
            values[row] = value
    return values


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
        known = {name: found["kendall"]["value"] for name, found in row["measures"].items() if found}
        print(f"{source}: " + ", ".join(f"{name} {value:.2f}" for name, value in known.items()))


if __name__ == "__main__":
    main()
