"""Seven adversaries who look for people: what each sees, and how many they name."""

from typing import Any

from results_page.engine import Study
from results_page.reading import Row

VIEWS = {
    "released": ("reidentify-static", "reidentify-adaptive"),
    "denoised": ("reidentify-denoised", "reidentify-denoised-adaptive"),
    "restored": ("reidentify-restored", "reidentify-restored-adaptive"),
}


def adversaries(studied: Study) -> list[Row]:
    """Of each protection: static and adaptive ones, on three views; and the one on the values.

    `papers` is the stronger of the paper's, who are static, on released and on denoised images; `risen`, how much more
    they name after the denoiser. `faces` found and `alike`, the SSIM to the original, are of the views that are `shown`.
    """
    return [_of(studied, spec) for spec in studied.file["protections"]]


def _of(studied: Study, spec: str) -> Row:
    attacks = [attack for pair in VIEWS.values() for attack in pair]
    top1 = {attack: studied.top1(spec, attack) for attack in (*attacks, "reidentify-values")}
    static = {view: (attack, top1[attack]) for view, (attack, _) in VIEWS.items()}
    papers = [static[view][1] for view in ("released", "denoised") if static[view][1]]
    return Row(
        spec=spec,
        top1=list(top1.values()),
        strongest=max(filter(None, top1.values()), key=lambda each: each.value),
        papers=max(papers, key=lambda each: each.value),
        risen=papers[1].value - papers[0].value if len(papers) == 2 else None,
        faces=[studied.attack(spec, attack).faces_found or 0.0 for attack, found in static.values() if found],
        alike=[studied.similarity(spec, view).ssim for view, (_, found) in static.items() if found],
    )


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"adversaries": adversaries}
