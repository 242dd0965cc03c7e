"""The questions of regulators and standards, each with the section of an evidence report that answers it."""

from typing import NamedTuple

INTRUDER, SINGLING, LINKING, INFERRING = "Recipient and intruder", "Singling out", "Linkability", "Inference"
PROOF, UTILITY, UNTESTED, REPEATING = "Proof", "Utility", "Not tested", "How to repeat it"
NOT_HERE = "Not in this report: the controller answers it"


class Clause(NamedTuple):
    """A clause, its question in our words, and the sections that answer it."""

    text: str
    asks: str
    answer: str


_WP29 = "WP29 Opinion 05/2014 (WP216)"
_ICO = "ICO, Anonymisation guidance (2025), effectiveness"
_ISO = "ISO/IEC 27559:2022"
_NIST = "NIST SP 800-226 (2025)"
_DPIA = "DPIA, GDPR Art. 35"
_ALL = f"{SINGLING}; {LINKING}; {INFERRING}"

CLAUSES = (
    Clause(
        "EMA Policy 0070; Health Canada PRCI",
        "Is the probability of re-identification at most 0.09?",
        f"{_ALL}. The default threshold is theirs, for published clinical reports",
    ),
    Clause(f"{_WP29}, Sec. 3", "Can an individual still be singled out?", SINGLING),
    Clause(f"{_WP29}, Sec. 3", "Can records about an individual still be linked?", LINKING),
    Clause(f"{_WP29}, Sec. 3", "Can information about an individual be inferred?", INFERRING),
    Clause(
        f"{_WP29}, Sec. 2.2.2",
        "Which means are likely reasonably to be used, by the controller or by others?",
        f"{INTRUDER}, for others. For the controller, who holds the originals: not in this report",
    ),
    Clause(
        f"{_WP29}, Sec. 5.2", "Are new risks looked for, and the residual risk assessed again?", REPEATING
    ),
    Clause(f"{_ICO}: key indicators", "Singling out, linkability and inferences", _ALL),
    Clause(
        f"{_ICO}: motivated intruder test",
        "Does somebody competent and motivated succeed, without prior knowledge or special skills?",
        f"{INTRUDER}; {_ALL}. These intruders have more skill and data. They ask nobody and search no public "
        f"sources: {UNTESTED}",
    ),
    Clause(f"{_ISO}, 6.2.2", "Security and privacy practices of the recipient", NOT_HERE),
    Clause(
        f"{_ISO}, 6.2.3", "Motives and capacity to re-identify", f"{INTRUDER}: capacity. Motives: not here"
    ),
    Clause(f"{_ISO}, 6.3", "Transparency, and harms to people", NOT_HERE),
    Clause(f"{_ISO}, 7.2", "Features of the data", f"{INTRUDER}: the release, people and images"),
    Clause(
        f"{_ISO}, 7.3.2", "Maximum or average risk", f"{_ALL}: “right” is average, “worst person” maximum"
    ),
    Clause(
        f"{_ISO}, 7.3.3",
        "Attack on a population or on a sample",
        f"{_ALL}: a sample, in the column “people”. {PROOF}: any number of equally likely people",
    ),
    Clause(f"{_ISO}, 7.3.4", "Privacy models of the data", PROOF),
    Clause(f"{_ISO}, 8.2.2", "Identifiability as a number, and its threshold", _ALL),
    Clause(f"{_ISO}, 8.2.3", "Adversarial testing", f"{_ALL}; {UNTESTED}"),
    Clause(f"{_ISO}, 8.3.4", "Evaluation after each change", REPEATING),
    Clause(f"{_ISO}, 9", "Governance before and after data are available", NOT_HERE),
    Clause(f"{_NIST}: privacy parameter", "Definition and strength of the guarantee", PROOF),
    Clause(
        f"{_NIST}: unit of privacy",
        "Does it protect a record or a person?",
        f"{PROOF}: one release of one image, not a person",
    ),
    Clause(f"{_NIST}: composition", "Loss over several releases", f"{SINGLING}: “proved” by releases"),
    Clause(f"{_NIST}: threat model", "Who is trusted?", f"{INTRUDER}: the device alone"),
    Clause(
        f"{_NIST}: utility and bias",
        "Accuracy, and its differences between groups",
        f"{UTILITY}: accuracy. Differences between groups: not in this report",
    ),
    Clause(
        f"{_NIST}: implementation",
        "Sampling of noise, side channels, access",
        "Not in this report: `sfumato audit protection` tests a stated guarantee",
    ),
    Clause(f"{_DPIA}(7)(a)", "Description of the processing and its purposes", f"{INTRUDER}, in part"),
    Clause(f"{_DPIA}(7)(b)", "Necessity and proportionality", f"{NOT_HERE}. {UTILITY} helps"),
    Clause(f"{_DPIA}(7)(c)", "Risks to rights and freedoms", f"{_ALL}: likelihood. Severity: not here"),
    Clause(f"{_DPIA}(7)(d)", "Measures against the risks", f"{INTRUDER}: the release; {PROOF}"),
    Clause(
        f"{_DPIA}(9), (11)", "Views of the people; review after changes", f"{NOT_HERE}. {REPEATING} helps"
    ),
)
