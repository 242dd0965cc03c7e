"""Which texts look alike: one rule for labels, people, tenants, columns and names of files.

Unicode's own lists decide, and none by hand: NFKC (UAX 15), the characters that are drawn as nothing
(Default_Ignorable_Code_Point, UAX 44), and those that look like another (confusables.txt of UTS 39, as the
package confusable-homoglyphs has it, without the pairs within ASCII: l, I and 1 stay three letters).
"""

import json
import re
import unicodedata
from functools import lru_cache
from importlib import resources

# Default_Ignorable_Code_Point, which no new version of Unicode may extend outside of these blocks; and the
# blank pattern of Braille, which is drawn as a space.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2800]"
)
_SEEN = frozenset("LMNPS")  # the first letters of the categories that are drawn
_WORD = re.compile(r"[^\W\d_]+")


@lru_cache(1)
def _prototypes() -> dict[int, str]:
    """Map each character of UTS 39 to the one that it looks like."""
    listed = json.loads(resources.files("confusable_homoglyphs").joinpath("confusables.json").read_bytes())
    alike = {one: [other["c"].strip("\u200e") for other in others] for one, others in listed.items()}
    found = {}
    for one, others in alike.items():  # in both directions: of a pair that is alone, the first counts
        prototype = others[0]
        if one.isascii() or len(others) > 1 or len(one) + len(prototype) > 2:
            continue
        if prototype.isascii():
            found[ord(one)] = _thin_or_round(one, prototype)
        elif len(alike.get(prototype, ())) > 1 or prototype < one:
            found[ord(one)] = prototype
    return found


def _thin_or_round(character: str, prototype: str) -> str:
    """Of l, I, 1 and |, or O and 0, which UTS 39 takes for one, the letter or digit that a character is."""
    if prototype not in "lO":
        return prototype
    letter = {"Sm": "|", "So": "|", "Ll": "l"}.get(unicodedata.category(character), "I")
    return str(unicodedata.digit(character, "O" if prototype == "O" else letter))


def find_hidden(text: str) -> str | None:
    """Return the first character that nobody sees, except plain spaces inside; None if there is none."""
    drawn = (c == " " or (unicodedata.category(c)[0] in _SEEN and not _IGNORABLE.match(c)) for c in text)
    return next((character for character, seen in zip(text, drawn, strict=True) if not seen), None)


def find_disguise(text: str) -> str | None:
    """Return a letter that looks like an ASCII letter, in a word that also has ASCII letters; or None."""
    latin = (word for word in _WORD.findall(text) if re.search("[A-Za-z]", word))
    others = (character for word in latin for character in word if not character.isascii())
    return next((c for c in others if _prototypes().get(ord(c), "é").isascii()), None)


def look(text: str) -> str:
    """Return a text that looks like this one, the same for all that look alike and no others; "" if blank."""
    wide = unicodedata.normalize("NFKC", text)
    drawn = "".join(c if c.isspace() else _draw(c) for c in unicodedata.normalize("NFD", wide))
    seen = unicodedata.normalize("NFC", " ".join(drawn.split()))
    return seen if seen == text else look(seen)  # a circled digit may look like another, which is a digit


def _draw(character: str) -> str:
    """Return the prototype of a character; "" if it is drawn as nothing, a space for Braille's blank."""
    if _IGNORABLE.match(character) or unicodedata.category(character) in ("Cc", "Cf"):
        return " " if character == "\u2800" else ""
    return _prototypes().get(ord(character), character)
