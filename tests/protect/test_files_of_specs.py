"""Parameters that are files are one type: what travels of them, and what a ledger calls them."""

from typing import get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from sfumato.device.ledger.tables import protection_key
from sfumato.errors import SpecError
from sfumato.learn.method import Spec
from sfumato.protect import parse
from sfumato.protect.outside import Outside
from sfumato.protect.parameters import file_parameters
from sfumato.protect.region import Region
from sfumato.protect.release import KINDS, artefact_of
from sfumato.protect.spec import PROTECTIONS, check_portable, files_of, portable, with_files

FOLDER = "/home/ada/secret club"


@pytest.mark.parametrize("name", [*PROTECTIONS])
def test_every_parameter_of_the_type_is_changed_in_a_spec(name: str):
    kind = PROTECTIONS[name]
    spec = f"{name}:{','.join(f'{key}={FOLDER}/a.b' for key in get_type_hints(kind))}"
    keys = file_parameters(kind)
    assert set(files_of(spec)) == keys
    assert portable(spec).count(FOLDER) == len(get_type_hints(kind)) - len(keys)


def test_the_file_of_a_region_is_of_the_type():
    assert file_parameters(Region) == {"file"}
    assert files_of(f"blur:radius=2@box:file={FOLDER}/b.csv,margin=1") == ["file"]


@pytest.mark.parametrize("name", [*PROTECTIONS])
def test_no_other_parameter_takes_a_path(name: str):
    """A parameter that is a word takes some words alone: a new one that is a file without the type fails."""
    kind = PROTECTIONS[name]
    files = file_parameters(kind)
    needed = ",".join(f"{key}=m" for key in sorted(files))
    for key, hint in get_type_hints(kind).items():
        if key not in files and hint is not float and hint is not int:
            with pytest.raises(SpecError):
                parse(f"{name}:{needed},{key}={FOLDER}/a.b".replace(":,", ":"), takes=KINDS)


@pytest.mark.parametrize(
    ("spec", "travels"),
    {
        f"outside:index={FOLDER}/i.csv": "outside:index=i.csv",
        f"outside: index = {FOLDER}/i.csv": "outside: index =i.csv",
        f"outside:index={FOLDER}/i.csv,/b/j.csv": "outside:index=i.csv,j.csv",
        f"code:flip=0.1,0.2,artefact={FOLDER}/c,{FOLDER}/d": "code:flip=0.1,0.2,artefact=c,d",
        f"dp-pix:cell=1/8,epsilon=3@box:file={FOLDER}/b.csv": "dp-pix:cell=1/8,epsilon=3@box:file=b.csv",
        f"answer:artefact={FOLDER}/a=b": "answer:artefact=a=b",
        f"unknown:to={FOLDER}/f": "unknown:to=f",
        "pixelize:cell=1/8@faces": "pixelize:cell=1/8@faces",
    }.items(),
)
def test_of_a_file_its_name_travels_and_no_folder(spec: str, travels: str):
    assert portable(spec) == travels
    assert portable(travels) == check_portable(travels) == travels
    if spec != travels:
        with pytest.raises(SpecError, match="names a file with its folder: only its name may travel"):
            check_portable(spec)


def test_the_card_of_a_model_names_no_folder_of_who_opens_it():
    """Its digest would be said to all who ask which models there are."""
    read = TypeAdapter(Spec).validate_python
    assert read("mask:artefact=m.safetensors,keep=0.2") == "mask:artefact=m.safetensors,keep=0.2"
    for spec in ("mask:artefact=/etc/passwd", "blur:radius=2@box:file=../boxes.csv", "outside:index=a/i.csv"):
        with pytest.raises(ValidationError, match="names a file with its folder"):
            read(spec)


@pytest.mark.parametrize("end", ["@box:file=x", "@faces", "@background:margin=1/x"])
def test_a_path_that_reads_like_a_region_is_refused(end: str):
    with pytest.raises(SpecError, match=r"a path has .* no @faces, @background or @box: rename the file"):
        Outside(f"{FOLDER}{end}")


def test_a_region_takes_no_other_protection_that_names_a_file():
    with pytest.raises(SpecError, match="cannot be applied to a part of an image"):
        parse("outside:index=i.csv@box:file=b.csv")


def test_a_ledger_calls_a_file_by_its_digest():
    digest = "0123456789abcdef" * 4
    for spec in (f"mask:artefact={FOLDER}/m,keep=0.2", "blur:radius=2@faces:file=m", "outside:index=/i.csv"):
        key = protection_key(spec, digest)
        assert key == with_files(spec, lambda _, __: digest[:16])
        assert FOLDER not in key
    assert protection_key("blur:radius=2@faces", digest) == f"blur:radius=2@faces@{digest[:16]}"


def test_no_digest_of_a_file_of_the_device_travels(tmp_path):
    """Whoever guesses what is in a table could check it by its digest."""
    (tmp_path / "boxes.csv").write_text("left,top,right,bottom\n0,0,1,1\n")
    assert artefact_of(parse(f"blur:radius=2@box:file={tmp_path}/boxes.csv")) is None
    assert artefact_of(Outside(f"{tmp_path}/index.csv")) is None
    (tmp_path / "m").write_bytes(b"weights")
    mask = parse(f"mask:artefact={tmp_path}/m")
    assert artefact_of(mask) == mask.digest()
