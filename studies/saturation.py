"""How much stronger adversaries get by longer training, by more releases and by more photographs that they hold.

    python studies/saturation.py faces steps copies gallery
    python studies/saturation.py lfw copies gallery --protections blur:radius=4 pixelize:cell=8 code:bits=16

Writes studies/results/saturation.jsonl. `faces` is the world of the demo and `lfw` that of
studies/lfw-smile.yaml; trained protections are read from their runs, and those that are not there are trained. By
steps the recogniser of the adaptive adversary is trained, from clean images to releases, so many of each at most; by
copies and gallery the adversaries on values are looked at. A run that was stopped goes on where it was.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rows import RESULTS, Rows

import sfumato
from sfumato.study import grid, run
from sfumato.study.choose.estimates import Study, belonging
from sfumato.study.records import parse, read_json

ROOT = Path(__file__).parents[1]
RECORDS = Rows(RESULTS / "saturation.jsonl")
WORLDS = {
    "faces": (ROOT / "src/sfumato/cli/demo.yaml", "demo", "feature:dimension=16,noise=0.3"),
    "lfw": (ROOT / "studies/lfw-smile.yaml", "lfw-smile", "feature:dimension=10,noise=0.3"),
}
PROTECTIONS = [
    "blur:radius=4",
    "pixelize:cell=8",
    "gaussian:sigma=160",
    "dp-pix:cell=8,epsilon=3",
    "mask:keep=0.1",
]
CODE = "code:bits=16"
# Nothing is learned here, but what is learned decides how a code is trained: of few known classes in LFW, in episodes
# of new ones on faces. Shapes alone are left to learn, of masks.
LEARNERS: dict[str, list[str]] = {"faces": [], "lfw": ["classifier-shape"]}
KNOBS = {"steps": (30, 100, 300, 1000), "copies": (1, 5, 20), "gallery": (1, 5, 20)}
ATTACKS = {"steps": "reidentify-adaptive", "copies": "reidentify-values", "gallery": "reidentify-values"}


def protections_of(world: str, knob: str) -> list[str]:
    """All that the adversaries of a curve can be tried on: nobody compares numbers or bits by a recogniser."""
    _, _, feature = WORLDS[world]
    return PROTECTIONS if knob == "steps" else [*PROTECTIONS, feature, CODE]


def study_of(world: str, knob: str, value: int, protections: Sequence[str]) -> grid.StudyConfig:
    """A study of one attack alone, whose adversary has that value."""
    path, ran, _ = WORLDS[world]
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["data"] = {"size": 32} | settings["data"]  # that of the demo
    adversary = settings["adversary"]
    adversary |= {"steps": value, "adaptive_steps": value} if knob == "steps" else {knob: value}
    settings |= {
        "name": f"saturation-{world}",
        "protections": list(protections),
        "attacks": [ATTACKS[knob]],
        "artefacts": str(ROOT / "runs" / ran / "models"),
        "adversary": adversary,
        "learners": LEARNERS[world],
        **{"measures": [], "reconstructions": []},
        **{"tells": False, "embeddings": False, "pictures": 0},
    }
    return grid.parse(settings)


def measured(world: str, knob: str, values: Sequence[int], protections: Sequence[str]) -> dict[str, Any]:
    """Protection -> by value, how often the strongest classifier names people, with its interval."""
    directory, start = ROOT / "runs" / f"saturation-{world}-{knob}", time.perf_counter()
    curves: dict[str, list[dict[str, Any]]] = {}
    for value in values:
        run.run(study_of(world, knob, value, protections), directory)
        study: Study = read_json(directory / "study.json", "run the study anew")
        names = [entry["digest"] for entry in study["cells"] if entry["kind"] == "attack"]
        records = [
            parse(read_json(directory / "records" / f"{name}.json", "reto begin another, move it"))
            for name in names
        ]
        for record in belonging(study, records, "attack"):
            if record.cell.protection == "none":
                continue
            best = max(record.result.scores, key=lambda score: score.top1)
            point = {
                "value": value,
                **{key: getattr(best, key) for key in ("classifier", "top1", "low", "high")},
            }
            trained = [network for network in record.result.trained if network.network.endswith("further")]
            if trained:
                point |= {"steps": trained[0].steps, "flat": trained[0].flat}
            curves.setdefault(record.cell.protection, []).append(point)
        print(json.dumps({"knob": knob, "value": value}), flush=True)
    return {
        "world": world,
        "knob": knob,
        "curves": curves,
        "seed": 0,
        "seconds": round(time.perf_counter() - start, 1),
        "version": sfumato.__version__,
    }


def main() -> None:
    """Measure, and write the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("world", choices=list(WORLDS))
    parser.add_argument("knobs", nargs="+", choices=list(KNOBS))
    parser.add_argument("--values", nargs="+", type=int, help="of the knobs, in place of all")
    parser.add_argument("--protections", nargs="+", metavar="SPEC", help="of the curves, in place of all")
    options = parser.parse_args()
    for knob in options.knobs:
        protections = options.protections or protections_of(options.world, knob)
        record = measured(options.world, knob, options.values or KNOBS[knob], protections)
        RECORDS[f"{options.world}-{knob}"] = record


if __name__ == "__main__":
    main()
