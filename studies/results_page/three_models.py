"""Three models on protected images (FS-PIC, Fig. 3, 4 and 11), and networks at the resolution of the release."""

from typing import Any

from results_page.engine import Study, apart, shared
from results_page.reading import Row
from sfumato import protect
from sfumato.learn import few_shot


def three_models(studied: Study) -> list[Row]:
    """Each protection of a study, by the accuracies of its models in the seeds that both have.

    `gap`: between the intervals of the protected and the clean-trained model, in the seed in which it is least. `gain`: of
    the denoiser, as a share of the accuracy without.
    """
    found = []
    for spec in studied.specs:
        clean, protected, denoised = (
            studied.accuracies(learner, spec) for learner in ("clean", "protected", "denoised")
        )
        both = shared(denoised, protected)
        gain = sum(one.accuracy for one, _ in both) / sum(other.accuracy for _, other in both) - 1
        gap = min(apart(*pair) for pair in shared(protected, clean))
        found.append(Row(spec=spec, gap=gap, gain=gain))
    return found


def resolutions(full: Study, cells: Study) -> list[Row]:
    """The paper's pipeline at every pixel against the same networks at one value a cell, of each protection with cells.

    `shares`: operations with and without a denoiser, of the paper's pipeline; `share`: of the better of the two, and
    `lower`: that one is below the paper's pipeline, intervals apart. `large`: cells are of 4 pixels or more.
    """
    model = few_shot.make_untrained(1, few_shot.FewShotConfig(cell=1), protect.parse("none"))
    whole = few_shot.operations(model, (1, 28, 28))
    rows = []
    for spec in cells.specs:
        paper = full.accuracy("denoised", spec)
        denoised, alone = (cells.accuracy(learner, spec) for learner in ("denoised", "protected"))
        best = max(denoised, alone, key=lambda each: each.accuracy)
        rows.append(
            Row(
                spec=spec,
                paper=paper,
                denoised=denoised,
                alone=alone,
                shares=[each.operations / whole for each in (denoised, alone)],
                share=best.operations / whole,
                lower=apart(paper, best) > 0,
                denoiser_helps=apart(denoised, alone) > 0,
                large=protect.parse(spec).cell >= 4,
                bytes_per_image=cells.similarity(spec).bytes_per_image or 0,
            )
        )
    return rows


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"three_models": three_models, "resolutions": resolutions}
