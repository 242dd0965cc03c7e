"""`sfumato audit`: a line for each protection, and exit code 1 for one that breaks its guarantee."""

import json

from sfumato.protect.dp_pix import DPPix

SMALL = ("--shape", "1x8x8", "--trials", "10000")


def test_each_protection_of_a_spec_gets_a_line_and_right_ones_end_well(command):
    said = command("audit", "dp-pix:cell=4,epsilon=1,3", *SMALL, "--seed", "3")
    assert said.code == 0
    lines = said.out.splitlines()[::2]
    assert [line.split(": ")[0] for line in lines] == ["dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=3"]
    assert all(": stated eps = " in line and "10,000 trials" in line for line in lines)


def test_pixels_and_confidence_reach_the_audit(command):
    said = command("audit", "gaussian:sigma=400", *SMALL, "--pixels", "4", "--confidence", "0.95")
    assert said.code == 0
    assert "stated mu = 1.275;" in said.out  # 2 * 255 / 400
    assert "95% confidence" in said.out
    assert "4 pixels" in said.out


def test_a_protection_without_a_guarantee_is_shown_and_not_convicted(command):
    said = command("audit", "blur:radius=1", *SMALL)
    assert said.code == 0
    assert said.out.startswith("blur:radius=1: nothing is stated; told apart at eps >= 6")


def test_a_protection_that_states_too_little_ends_with_1_and_a_plain_sentence(command, monkeypatch):
    honest = DPPix.release
    monkeypatch.setattr(
        DPPix, "release", lambda self, images, noise: honest(DPPix(self.cell, 8.0), images, noise)
    )
    said = command("audit", "dp-pix:cell=4,epsilon=1", *SMALL)
    assert said.code == 1
    assert said.out.splitlines()[1].startswith("dp-pix:cell=4,epsilon=1 gives away more than it states: ")


def test_what_is_proved_of_naming_people_has_a_line(command):
    said = command("audit", "dp-pix:cell=4,epsilon=0.02", *SMALL)
    # The whole image is at eps = 64 * 0.02 = 1.28, and e^1.28 is 3.597.
    assert said.out.splitlines()[1:] == [
        "dp-pix:cell=4,epsilon=0.02: after 1 release nobody, whatever they know, names the right one of 100 "
        "equally likely people more than 3.6% of the time, or of 1,000 more than 0.36%, or of 1,000,000 more "
        "than 0.00036% (on average over people and noise, so that a rare release may name its own person; "
        "pure DP from a centre: Kairouz, Oh & Viswanath 2015, Thm. 3.3)"
    ]


def test_pixels_that_prove_something_only_among_many_people_say_so(command):
    said = command("audit", "dp-pix:cell=4,epsilon=0.12", *SMALL)
    assert said.out.splitlines()[1] == (
        "dp-pix:cell=4,epsilon=0.12: after 1 release nobody, whatever they know, names the right one of "
        "1,000,000 equally likely people more than 0.22% of the time (on average over people and noise, so "
        "that a rare release may name its own person; pure DP from a centre: Kairouz, Oh & Viswanath 2015, "
        "Thm. 3.3); among 100 or 1,000 people nothing is proved"
    )


def test_where_nothing_is_proved_of_naming_the_line_says_so(command):
    said = command("audit", "dp-pix:cell=4,epsilon=3", *SMALL)
    assert said.out.splitlines()[1] == ("dp-pix:cell=4,epsilon=3: nothing is proved of who it shows")


def test_without_a_guarantee_nothing_is_proved_of_naming(command):
    said = command("audit", "blur:radius=1", *SMALL)
    assert said.out.splitlines()[1] == ("blur:radius=1: nothing is proved of who it shows")


def test_several_releases_of_one_person_prove_less(command):
    said = command("audit", "dp-pix:cell=4,epsilon=0.02", *SMALL, "--releases", "3")
    line = said.out.splitlines()[1]
    assert ": after 3 releases nobody" in line
    assert float(line.split(" more than ")[1].split("%")[0]) > 3.6
    said = command("audit", "dp-pix:cell=4,epsilon=3", *SMALL, "--releases", "3")
    assert said.out.splitlines()[1] == "dp-pix:cell=4,epsilon=3: nothing is proved of who they show"


def test_a_shape_that_is_none_is_refused(command):
    said = command("audit", "dp-pix:cell=4,epsilon=1", "--shape", "28x28")
    assert said.code == 1
    assert not said.out
    assert "--shape 28x28: write channels x height x width, as 3x28x28" in said.err


def test_what_an_audit_found_is_said_in_json(command):
    fast = ["--shape", "1x8x8", "--trials", "10000", "--json"]
    told = json.loads(command("audit", "dp-pix:cell=4,epsilon=1", *fast).out)
    assert (told["spec"], told["convicted"], told["stated"]["value"]) == ("dp-pix:cell=4,epsilon=1", False, 1)
    assert 0 <= told["lower"] <= told["most"]
