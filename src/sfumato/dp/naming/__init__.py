"""Upper bounds on anybody's chance to name the person that a release shows.

The adversary knows everything but the person and the noise: the protection, all photographs, the likely
releases of each person. Person i is theirs with probability π_i beforehand, and their best guess with π
= max π_i: 1/N for N equally likely people. From the releases y of one person they guess, and are right with

    Σ_i π_i P_i(they guess i) <= Σ_y max_i π_i P_i(y),

where P_i(y) is an average over person i's releases, and over the noise. Every function bounds this number. It
also bounds the guessing of any other secret whose best guess beforehand is π.

It is an AVERAGE over people and over releases. A rare output may name its person, though the average is
small: the bound for one output is max_i π_i P_i(y) / P(y), which can be 1.

Releases are those of one person, of the same image or of different ones, with fresh noise for each; by one
protection, or by several (`compose`). Many releases prove nearly nothing without an assumption about them
(`bound`): the assumption is a part of the statement, and is printed with it.

In all functions, `prior` is π, or the priors of all people (many use only the largest: their formulas have
only π), `releases` is n >= 1, each with fresh noise, and `assuming` is the assumption about them. A number
out of range raises ConfigError.
"""

from sfumato.dp.naming.bound import (
    ASSUMED,
    BY_STRENGTH,
    Assumption,
    Bound,
    Prior,
    discrete,
    gaussian_ball,
    least,
    log_rank,
)
from sfumato.dp.naming.many import NOTHING_KNOWN, Information, Proof, compose
from sfumato.dp.naming.one import (
    MOST_OUTPUTS,
    approximate,
    concentrated,
    counting,
    discrete_mu,
    flipped_bits,
    gaussian,
    of_each,
    pure,
    randomised_response,
)
from sfumato.dp.naming.period import (
    bound_posterior,
    count_alarms,
    count_histograms,
    histogram_of,
    number_histogram,
    round_shares,
)
from sfumato.dp.naming.statement import Naming, make_statement, percent, prior_of, sentence, sentences

__all__ = [
    "ASSUMED",
    "BY_STRENGTH",
    "MOST_OUTPUTS",
    "NOTHING_KNOWN",
    "Assumption",
    "Bound",
    "Information",
    "Naming",
    "Prior",
    "Proof",
    "approximate",
    "bound_posterior",
    "compose",
    "concentrated",
    "count_alarms",
    "count_histograms",
    "counting",
    "discrete",
    "discrete_mu",
    "flipped_bits",
    "gaussian",
    "gaussian_ball",
    "histogram_of",
    "least",
    "log_rank",
    "make_statement",
    "number_histogram",
    "of_each",
    "percent",
    "prior_of",
    "pure",
    "randomised_response",
    "round_shares",
    "sentence",
    "sentences",
]
