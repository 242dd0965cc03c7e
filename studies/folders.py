"""Audit folders that three tools protected: scenes of Caltech-101 with LFW faces, by deface, by ours and by a phone's mosaic.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101
    pip install deface==1.5.0                                           # in an environment of its own
    OMP_NUM_THREADS=1 python studies/folders.py --deface PATH/bin/deface --out runs/folders

Ten people with two scenes of 640x480 each; a second, unknown person stands in four of them. Known photographs are three
others of each person. The pages are written to --out, since they show people. Beside that, look.look is asked about
photographs of 84x84 of LFW and Caltech-101 that did not set its thresholds (every second one did), as they are and protected
at several strengths, as PNG and as JPEG of quality 75. Writes studies/results/folders.jsonl.
"""

import argparse
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from regions import DATA, ROOT, _resized

import sfumato
from sfumato import images, protect
from sfumato.assess.similarity import psnr
from sfumato.audits.findings import write_page
from sfumato.audits.folder import NamingConfig, audit_folder
from sfumato.audits.folder.look import look
from sfumato.audits.folder.pictures import cut
from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect.region import Region, disjoint
from sfumato.study.records import write_rows

PEOPLE, SCENES, KNOWN, PHOTOGRAPHS = 10, 2, 3, 50
SPECS = {
    "none": "none",
    "blur:radius=2": "blur",
    "blur:radius=4": "blur",
    "pixelize:cell=4": "mosaic",
    "pixelize:cell=12": "mosaic",
    "gaussian:sigma=30": "noise",
    "gaussian:sigma=80": "noise",
    "dp-pix:cell=4,epsilon=3": "mosaic",
    "block:share=0.5": "one colour",
}
WEIGHTS = ROOT.parent / "shared" / "data" / "weights"
CONFIG = NamingConfig(
    size=64,
    steps=6,
    adaptive_steps=3,
    restoration_steps=6,
    weights=str(WEIGHTS / "mobilefacenet_casia_112x96.safetensors"),
    detector=str(WEIGHTS / "mtcnn.safetensors"),
    releases=(1, 2),
)


def make_scenes(out: Path) -> dict[str, list[tuple[int, int, int, int]]]:
    """Write scenes, known photographs and people.csv; the face boxes of each scene."""
    draw = random.Random(3)
    grounds = sorted(path for path in DATA.glob("caltech101/*/*.png") if path.parent.name != "Faces")
    people = [path for path in sorted(DATA.glob("lfw/*/")) if len(list(path.glob("*.png"))) >= KNOWN + SCENES]
    draw.shuffle(people)
    boxes, lines = {}, ["file,person"]
    for number, person in enumerate(people[:PEOPLE]):
        photographs = sorted(person.glob("*.png"))[: KNOWN + SCENES]
        for path in photographs[:KNOWN]:
            images.write(out / "known" / person.name / path.name, images.read(path))
        for scene, path in enumerate(photographs[KNOWN:]):
            name, boxes_of_one = f"{number:02d}-{scene}", []
            picture = _resized(images.read(draw.choice(grounds)), 480, 640)
            other = draw.choice(sorted(people[PEOPLE + number].glob("*.png")))
            shown = [path, other] if number % 3 == 0 and scene == 0 else [path]
            for place, face in enumerate(shown):
                side, top = draw.randint(90, 180), draw.randint(20, 280)
                left = draw.randint(20, 120) + 320 * place
                picture[:, top : top + side, left : left + side] = _resized(images.read(face), side, side)
                boxes_of_one.append((top, top + side, left, left + side))
            images.write(out / "originals" / f"{name}.png", picture)
            lines.append(f"{name}.png,{person.name}")
            boxes[name] = boxes_of_one
    (out / "people.csv").write_text("\n".join(lines) + "\n")
    return boxes


def by_deface(out: Path, program: str, kind: str, *options: str) -> None:
    """Protect all scenes by deface's own program, which writes beside its input."""
    folder = out / kind
    shutil.copytree(out / "originals", folder)
    subprocess.run([program, *options, str(folder)], check=True, capture_output=True)
    for path in folder.glob("*_anonymized.png"):
        path.replace(folder / path.name.replace("_anonymized", ""))


def by_us_and_by_a_phone(out: Path, boxes: dict[str, list[tuple[int, int, int, int]]]) -> None:
    """Protect faces by a mosaic of eighths, as `sfumato protect --where faces`; and boxes as a phone's app does."""
    ours = protect.parse("pixelize:cell=1/8@faces:missing=all")
    assert isinstance(ours, Region)
    for name, of_scene in boxes.items():
        picture = images.read_array(out / "originals" / f"{name}.png")
        images.write(
            out / "sfumato" / f"{name}.png", ours.release(picture[None], seeded_noise(0)).pictures()[0]
        )
        for top, bottom, left, right in of_scene:
            part = picture[None, :, top:bottom, left:right]
            mosaic = protect.parse(f"pixelize:cell={max(4, (right - left) // 12)}")
            picture[:, top:bottom, left:right] = mosaic.release(part, seeded_noise(0)).pictures()[0]
        images.write(out / "phone" / f"{name}.jpg", picture, quality=80)


def count_missed(originals: Path, released: Path) -> dict[str, int]:
    """The faces on originals, and those that a release shows as they were: at 25 dB or more."""
    region, faces, missed = Region(protect.parse("block"), "faces", file=str(CONFIG.detector)), 0, 0
    for path in sorted(released.glob("*.*")):
        original, shown = images.read(originals / f"{path.stem}.png"), images.read(path)
        for box in disjoint(region.find(original)):
            first, second = (images.to_float(cut(each, box)[None]) for each in (original, shown))
            faces, missed = faces + 1, missed + int(psnr(first, second) >= 25)
    return {"faces": faces, "missed": missed}


def audit(out: Path, kind: str) -> dict[str, Any]:
    """Audit one folder, and write its page."""
    csv = out / "people.csv"
    if kind == "phone":
        csv = out / "phone.csv"
        csv.write_text((out / "people.csv").read_text().replace(".png", ".jpg"))
    report = audit_folder(out / kind, known=out / "known", people=csv, config=CONFIG)
    write_page(report, out / f"{kind}.html")
    found = {each.name: each for each in report.findings}
    figures = {name: dict(found[name].figures) for name in ("protection", "faces", "naming") if name in found}
    missed = count_missed(out / "originals", out / kind)
    return {"folder": kind, "sentence": report.sentence, **figures, "originals": missed}


def rate_looks() -> list[dict[str, Any]]:
    """How often the kind of protection is right, on photographs that set no threshold."""
    paths, draw = [], random.Random(0)
    for name in ("lfw", "caltech101"):
        every = sorted(DATA.glob(f"{name}/*/*.png"))
        draw.shuffle(every)
        paths += every[1 : 2 * PHOTOGRAPHS : 2]
    originals = torch.stack([images.read(path, size=84) for path in paths])
    rows = []
    for spec, kind in SPECS.items():
        released = protect.parse(spec).release(originals, seeded_noise(0)).images()
        for quality in (None, 75):
            seen = [
                look(each if quality is None else images.read(images.encode(each, "JPEG", quality=quality)))
                for each in released
            ]
            right = [each for each in seen if each.kind == kind]
            middle = sorted(each.strength for each in right)[len(right) // 2] if right else None
            row = {"spec": spec, "quality": quality, "right": len(right), "of": len(seen)}
            rows.append(row | {"strength": middle})
    return rows


def main() -> None:
    """Make the folders, audit them, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--deface", required=True, help="the program of deface")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "folders")
    options = parser.parse_args()
    boxes = make_scenes(options.out)
    by_deface(options.out, options.deface, "deface")
    by_deface(options.out, options.deface, "deface-mosaic", "--replacewith", "mosaic")
    by_us_and_by_a_phone(options.out, boxes)
    kinds = ("originals", "deface", "deface-mosaic", "sfumato", "phone")
    record: dict[str, Any] = {"folders": [audit(options.out, kind) for kind in kinds], "looks": rate_looks()}
    record |= {"scenes": len(boxes), "people": PEOPLE, "known": KNOWN, "version": sfumato.__version__}
    write_rows(ROOT / "studies" / "results" / "folders.jsonl", [record])
    print(json.dumps(record))


if __name__ == "__main__":
    main()
