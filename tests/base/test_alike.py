"""Texts that look alike are one text; texts that look different stay several."""

import unicodedata

import pytest

from sfumato.base.alike import find_disguise, find_hidden, look

# Characters that are drawn as nothing: hyphens, joiners, spaces, selectors, tags, fillers, controls.
NOTHING = "\u00ad\u034f\u200b\u2062\ufe0f\U000e0041\u3164\u180e\u17b4\x07"
LOOKS = ["anna ", "\u00a0anna", "anna\u2800", "\u0430nna", "ann\u03b1", "\uff41nna", "\U0001d41anna"]


@pytest.mark.parametrize("text", [*LOOKS, *(f"an{character}na" for character in NOTHING)], ids=ascii)
def test_a_text_that_looks_like_another_has_its_look(text):
    assert look(text) == "anna"


def test_a_look_has_its_own_look_and_does_not_depend_on_the_normal_form():
    for code in range(0x3000):
        text = f"a{chr(code)}b"
        assert look(look(text)) == look(text)
        for form in ("NFC", "NFD"):
            assert look(unicodedata.normalize(form, text)) == look(text)


def test_texts_of_ascii_letters_look_as_different_as_they_are():
    assert len({look(chr(code)) for code in range(0x21, 0x7F)}) == 0x7F - 0x21
    assert len({look(text) for text in ("person1", "personl", "personI", "s10", "sl0", "slO")}) == 6


@pytest.mark.parametrize(
    "name", ["Zo\xeb", "zoe", "\u0410\u043d\u043d\u0430", "\u6771\u4eac", "\u05d0\u05e0\u05d4", "m\xfcller"]
)
def test_names_of_any_script_are_seen_and_not_disguised(name):
    assert find_hidden(name) is find_disguise(name) is None


def test_every_character_that_is_drawn_as_nothing_is_hidden():
    for code in [0xA0, 0xAD, 0x34F, 0x115F, 0x180B, 0x2007, 0x202E, 0x2065, 0x2800, 0x3000, 0xFE00, 0xE0001]:
        assert find_hidden(f"a{chr(code)}b") == chr(code)


def test_a_letter_of_another_script_among_latin_ones_is_a_disguise():
    assert find_disguise("p\u0430ul") == "\u0430"
    assert find_disguise("paul \u0430\u043d\u043d\u0430") is None
