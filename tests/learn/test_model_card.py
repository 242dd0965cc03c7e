"""Model cards: what an artefact says of itself, in words."""

import json

import pytest
import torch

from sfumato import artefacts
from sfumato.errors import ArtefactError
from sfumato.learn import model_card
from sfumato.networks.code import make_code_network

SHAPE = (3, 16, 16)


def code(path, *, bits=16, **more):
    """An untrained encoder of a code."""
    network = make_code_network("conv4", SHAPE, dimension=bits, seed=0)
    card = {"kind": "code", "config": {"encoder": "conv4", "bits": bits}, "shape": list(SHAPE), **more}
    artefacts.save(path, {f"network.{k}": v for k, v in network.state_dict().items()}, card)
    return path


def section(card, heading):
    return " ".join(card.sections[heading])


def test_it_states_what_counting_proves_and_no_more(tmp_path):
    # 2^5 / 1,000 = 3.2% and 2^16 / 1,000,000 = 6.5536% (Smith 2009); 2^16 outputs prove nothing among 1,000
    few = section(model_card.describe(code(tmp_path / "5.safetensors", bits=5)), "What is proved")
    assert "of 1,000 equally likely people more than 3.2%" in few
    many = section(model_card.describe(code(tmp_path / "16.safetensors")), "What is proved")
    assert "more than 6.6% of the time" in many
    assert "among 1,000 people nothing is proved" in many
    assert "About the images that it was trained on: nothing is promised" in many


def test_it_says_what_it_was_trained_on_and_for(tmp_path):
    said = {"data": {"name": "faces", "images": 4320}, "target": "headwear", "classes": 96}
    said |= {"sensitive": ["identity"]}
    card = model_card.describe(code(tmp_path / "c.safetensors", **said, validation_accuracy=0.928))
    trained = section(card, "What it was trained on and for")
    for words in ("4,320 images", "'faces'", "'headwear'", "96 training classes", "hide: identity", "16x16"):
        assert words in trained
    assert "92.8%" in section(card, "Accuracy")
    assert "drawn here" in section(card, "Licence")


def test_what_the_file_does_not_say_is_not_made_up(tmp_path):
    card = model_card.describe(code(tmp_path / "c.safetensors"))
    assert section(card, "Accuracy") == "The file does not say."
    assert "records no attack" in section(card, "Adversaries")
    assert (
        section(model_card.describe(tmp_path / "c.safetensors", measured=["2% named."]), "Adversaries")
        == "2% named."
    )


def test_every_form_has_every_sentence(tmp_path):
    card = model_card.describe(code(tmp_path / "c.safetensors", target="<b>hat</b>"))
    assert json.loads(json.dumps(card.as_json()))["card"]["target"] == "<b>hat</b>"
    for lines in card.sections.values():
        assert all(line in card.as_text() for line in lines)
    page = card.as_html()
    assert "<b>hat" not in page
    assert "&lt;b&gt;hat" in page
    assert "http" not in page and "src=" not in page  # noqa: PT018


def test_a_name_cannot_move_the_cursor(tmp_path):
    assert "\x1b" not in model_card.describe(code(tmp_path / "c.safetensors", target="\x1b[2Jhat")).as_text()


@pytest.mark.parametrize("wrong", [{"data": {"images": "many"}}, {"shape": [3, 16]}, {"classes": 1.5}])
def test_a_card_that_makes_no_sense_is_refused(tmp_path, wrong):
    path = code(tmp_path / "c.safetensors", **wrong)
    with pytest.raises(ArtefactError, match=r"c\.safetensors: damaged, or of another version"):
        model_card.describe(path)


def test_an_edited_file_is_refused(tmp_path):
    path = code(tmp_path / "c.safetensors", target="hat")
    path.write_bytes(path.read_bytes().replace(b'\\"hat\\"', b'\\"cat\\"'))
    with pytest.raises(ArtefactError, match="edited after it was saved"):
        model_card.describe(path)


def test_a_kind_that_is_new_is_shown_as_far_as_it_goes(tmp_path):
    artefacts.save(tmp_path / "n.safetensors", {"w": torch.zeros(1)}, {"kind": "novelty"})
    card = model_card.describe(tmp_path / "n.safetensors")
    assert "An artefact of kind 'novelty'." in section(card, "What it is")


def test_what_is_stated_after_a_training_is_in_the_card_and_the_weights_stay(tmp_path):
    path = code(tmp_path / "c.safetensors")
    before = model_card.describe(path)
    assert section(before, "Licence").startswith("No licence is stated")
    tensors, _ = artefacts.load(path, kind="code")
    test = {"mean": 0.9, "low": 0.85, "high": 0.94, "over": "images", "number": 200}
    artefacts.amend(path, licence="CC-BY-4.0", test=test)
    after = model_card.describe(path)
    assert section(after, "Licence").startswith("CC-BY-4.0, as the person who trained it states.")
    sentence = "90.0% in the test, with a 95% interval from 85.0% to 94.0%, over 200 test images."
    assert sentence in section(after, "Accuracy")
    again, _ = artefacts.load(path, kind="code")
    assert all(torch.equal(again[name], value) for name, value in tensors.items())


@pytest.mark.parametrize("folder", ["a,b", "me @faces", " c "])
@pytest.mark.parametrize("name", ["c.safetensors", "d,e.safetensors"])
def test_the_card_of_a_sound_artefact_is_told_under_any_path(tmp_path, folder: str, name: str):
    place = tmp_path / folder
    place.mkdir()
    plain = model_card.describe(code(tmp_path / "5.safetensors", bits=5))
    card = model_card.describe(code(place / name, bits=5))
    assert section(card, "What is proved") == section(plain, "What is proved")
    assert str(tmp_path) not in section(card, "What is proved")


def test_it_says_what_the_splits_of_its_data_share(tmp_path):
    words = "3 of 4 images of test are the same pictures as in train: what is measured on test is too high"
    card = model_card.describe(code(tmp_path / "c.safetensors", shared=[words]))
    assert f"Of its data, {words}." in section(card, "Accuracy")
