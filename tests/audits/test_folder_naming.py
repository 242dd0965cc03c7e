"""Naming people on images that others released: shares with controls, and every refusal by its message."""

from pathlib import Path

import pytest
import torch

from sfumato import data, images, protect
from sfumato.attack.ensemble import by_sets
from sfumato.audits.folder import NamingConfig, audit_folder
from sfumato.audits.folder.pictures import cut, list_files, read_pictures
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError
from sfumato.learn import code
from sfumato.learn.code import CodeConfig
from sfumato.wire import encode

TINY = NamingConfig(size=32, steps=4, adaptive_steps=2, student_steps=2, releases=(1, 3, 50))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six drawn people: five known photographs of each, and three releases by each of two strengths."""
    root = tmp_path_factory.mktemp("folders")
    world = data.load("faces", size=48, identities=6, images_per_identity=8)
    label = world.label("identity")
    counted = dict.fromkeys(label.names, 0)
    for image, who in zip(world.images, label.codes.tolist(), strict=True):
        name = label.names[who]
        number = counted[name] = counted[name] + 1
        if number > 3:
            images.write(root / "known" / name / f"{number}.png", image)
            continue
        for cell in (4, 48):
            release = protect.parse(f"pixelize:cell={cell}").release(image[None], seeded_noise(0))
            images.write(root / f"cell{cell}" / name / f"{number}.png", release.images()[0])
    return root


@pytest.fixture(scope="module")
def named(folders: Path) -> dict[int, list]:
    """Cell -> the findings."""
    weak = audit_folder(folders / "cell4", known=folders / "known", spec="pixelize:cell=4", config=TINY)
    strong = audit_folder(folders / "cell48", known=folders / "known", spec="none", config=TINY)
    return {4: weak.findings, 48: strong.findings}


def test_people_are_named_from_small_cells_and_as_often_as_by_guessing_from_one_cell_a_face(named):
    weak, strong = named[4][0], named[48][0]
    assert weak.figures["guessing"] == pytest.approx(1 / 6)
    assert weak.verdict == "leaks"
    assert weak.figures["named"] > 2 / 6
    assert strong.verdict == "not shown"


def test_adversaries_who_know_the_protection_are_added_to_those_who_do_not(named):
    ways = {name.partition(",")[0] for name in named[4][0].figures["by_adversary"]}
    assert ways == {
        "static adversary by conv4",
        "adaptive adversary by conv4",
        "adaptive adversary whose network learned to see through it by conv4",
        "adaptive adversary on the values that travelled",
        "all of them together",
    }
    ways = {name.partition(",")[0] for name in named[48][0].figures["by_adversary"]}
    assert ways == {
        "static adversary by conv4",
        "adaptive adversary on the values that travelled",
        "all of them together",
    }


def test_more_releases_of_one_person_name_them_more_often_and_too_few_are_not_measured(named):
    draw = torch.Generator().manual_seed(0)
    truth = torch.arange(6).repeat_interleave(12)
    scores = torch.randn(72, 6, generator=draw) + torch.nn.functional.one_hot(truth, 6)
    one, ten = (by_sets(scores, truth, size, 0) for size in (1, 10))
    assert one is not None
    assert ten is not None
    assert one.mean() + 0.2 < ten.mean()
    several = named[4][1]
    assert several.figures["not_measured"] == [50]
    assert "fewer than 4 people have enough of them here (at most 3)" in several.sentence


def test_without_true_names_each_file_gets_its_likeliest_people_and_no_rate(folders, tmp_path):
    for number, path in enumerate(sorted((folders / "cell4").rglob("*.png"))[:4]):
        images.write(tmp_path / f"{number}.png", images.read(path))
    (finding,) = audit_folder(tmp_path, known=folders / "known", spec="none", config=TINY).findings
    assert "nothing says how many guesses" in finding.sentence
    assert sorted(line[0] for line in finding.figures["files"]) == [f"{n}.png" for n in range(4)]


def test_codes_are_compared_with_codes_of_known_photographs(folders, tmp_path):
    world = data.load("faces", size=16, identities=4, images_per_identity=4, headwear=4)
    settings = {"target": "headwear", "sensitive": (), "validation": None, "seed": 0}
    code.make_untrained(world, CodeConfig(numbers=6), **settings).save(tmp_path / "code.safetensors")
    spec = f"code:numbers=6,artefact={tmp_path / 'code.safetensors'}"
    label = world.label("identity")
    for row, (image, who) in enumerate(zip(world.images, label.codes.tolist(), strict=True)):
        folder = tmp_path / ("known" if row % 2 else "out") / label.names[who]
        folder.mkdir(parents=True, exist_ok=True)
        if row % 2:
            images.write(folder / f"{row}.png", image)
        else:
            sent = protect.parse(spec, takes=("numbers",)).release(image[None], seeded_noise(0))
            (folder / f"{row}.release").write_bytes(encode(sent))
    report = audit_folder(tmp_path / "out", known=tmp_path / "known", spec=spec, config=TINY)
    assert report.findings[0].figures["releases"] == 8
    assert str(tmp_path) not in str(report)
    with pytest.raises(DataError, match="codes and features are read from"):
        audit_folder(folders / "cell4", known=tmp_path / "known", spec=spec, config=TINY)


def test_a_table_of_true_names_counts_as_sub_folders_do(folders):
    files = list_files(folders / "cell4").files
    (folders / "who.csv").write_text(
        "file,person\n" + "".join(f"{each.name},{each.person}\n" for each in files)
    )
    assert list_files(folders / "cell4", folders / "who.csv").files == files


def test_a_box_at_the_edge_is_cut_as_a_whole_square_within_the_picture():
    picture = torch.arange(3 * 8 * 10).reshape(3, 8, 10).to(torch.uint8)
    part = cut(picture, (-2, 4, 7, 11))
    assert part.equal(picture[:, 0:6, 4:10])


def test_refusals_say_what_is_wrong_and_what_to_do(folders, tmp_path):
    known = folders / "known"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images: an audit needs at least one"):
        audit_folder(tmp_path / "empty", known=known, spec="none")
    with pytest.raises(DataError, match="no such folder"):
        audit_folder(tmp_path / "none", known=known, spec="none")
    one = sorted(known.iterdir())[0]
    with pytest.raises(DataError, match="0 people are known by name"):
        audit_folder(folders / "cell4", known=one, spec="none", config=TINY)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"nothing")
    (tmp_path / "bad" / "out.png").symlink_to(sorted(one.iterdir())[0])
    with pytest.raises(DataError, match="none of its 1 files can be used: 2 were not looked at"):
        audit_folder(tmp_path / "bad", known=known, spec="none")
    (tmp_path / "bad" / "b.png").write_bytes(sorted(one.iterdir())[0].read_bytes())
    listing = list_files(tmp_path / "bad")
    assert len(read_pictures(listing.files, tmp_path / "bad", size=32, outcome=listing.outcome).images) == 1
    assert listing.outcome.left_out == {
        "link out of its folder": 1,
        "file that cannot be read (not an image that can be read)": 1,
    }
    (tmp_path / "who.csv").write_text("file,person\nx.png,anna\n")
    with pytest.raises(DataError, match="no file 'x\\.png'"):
        list_files(folders / "cell4", tmp_path / "who.csv")
    with pytest.raises(ConfigError, match="detector=None: name the file"):
        NamingConfig(weights="a.safetensors")
    with pytest.raises(ConfigError, match="size=8: from 16 to 512"):
        NamingConfig(size=8)
    with pytest.raises(
        ConfigError, match="second=dlib: it gets faces that a detector found: add it to one of"
    ):
        NamingConfig(second="dlib")
