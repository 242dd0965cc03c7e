"""What is rebuilt of gradients."""

import statistics
from typing import Any

from results_page.reading import Row, record, records
from sfumato.dp.guarantee import round_up

NETWORKS = {"lenet": "LeNet", "convnet8-16": "ConvNet8 of width 16", "resnet20": "ResNet-20"}
DEFENCES = ("none", "pruning", "gaussian", "laplacian", "dp-sgd", "mixup")


def inversion() -> Row:
    """The records of studies/inversion.py, defences from less to more."""
    names = ("dlg", "idlg", "lenet-1", "lenet-16", "batch", "first-layer", "cafe")
    deep = [f"{network}-{state}" for network in list(NETWORKS)[1:] for state in ("untrained", "trained")]
    rebuilt = {name: record(f"inversion/{name}") for name in (*names, *deep)}
    for each in rebuilt.values():
        each |= {"victim": None, "chosen": None, "workers": 4} | each
        each["mean_psnr"] = statistics.mean(each.psnr)
        if each.victim:
            each.victim["words"] = words(each.victim)
    labels = record("inversion/labels")
    for each in labels.victims:
        each["share"] = Row({of: right / each.in_batches for of, right in each.counted_right.items()})
        each["words"] = NETWORKS[each.victim.network]
    defences = _defences()
    seconds = [each.seconds for each in (*rebuilt.values(), labels, *defences)]
    pairs = zip(rebuilt["lenet-1"].psnr, rebuilt["lenet-16"].psnr, strict=False)  # the first of these images
    gained = [after - before for before, after in pairs]
    return Row(rebuilt=rebuilt, labels=labels, defences=defences, seconds=seconds, gained=gained)


def words(victim: Row) -> str:
    """Whose gradients are attacked."""
    trained = "" if victim.get("accuracy") is None else f", trained (accuracy {100 * victim.accuracy:.0f}%)"
    return NETWORKS[victim.network] + trained


def _defences() -> list[Row]:
    found = records("inversion/defence-*")
    found.sort(key=lambda each: (DEFENCES.index(each.kind), float(each.defence.partition(" ")[2] or 0)))
    for place, each in enumerate(found):
        each["best"] = each.attacks[each.strongest]
        each["promise"] = "" if each.get("epsilon") is None else round_up(each.epsilon)
        for key in ("unaware", "aware"):
            known = key == "aware"
            those = [of for of in each.attacks if (of.adversary != "knows nothing of them") == known]
            each[key] = max((of.mean_psnr for of in those), default=None)
        bounds = [less.best.mean_psnr for less in found[:place] if less.kind in ("none", each.kind)]
        each["in_order"] = all(each.best.mean_psnr <= bound for bound in bounds)
    return found


def curves() -> dict[str, Row]:
    """Network -> what is rebuilt of it by steps, the fewest first."""
    found = {each.victim.network: each for each in records("inversion/curve-*")}
    for each in found.values():
        each["by_steps"] = sorted((int(steps), point) for steps, point in each.points.items())
        each["best"] = max(statistics.mean(point.psnr) for point in each.points.values())
        each["words"] = words(each.victim)
    return found


def published(found: Row) -> list[tuple[str, str, str, str, str]]:
    """Figures of papers beside ours: paper, attack and victim, figure there, here, what differs.

    Geiping et al. 2020, Table 1, and Zhao et al. 2020, Table 1.
    """

    def mean(name: str) -> str:
        return f"{found.rebuilt[name].mean_psnr:.1f} dB, mean of {found.rebuilt[name].images}"

    deep = "20 images instead of 100, of a part of CIFAR-10"
    few = f"{found.rebuilt['resnet20-untrained'].images} images instead of 100; ResNet-20 of 16 channels, not 64; 1 start"
    single = [each for each in found.labels.victims if each.state == "untrained"]
    right, asked = sum(each.single_right for each in single), sum(each.single for each in single)
    geiping = "Geiping et al. 2020"
    return [
        (geiping, "Euclidean loss, L-BFGS, untrained LeNet", "46.25 ± 12.66 dB", mean("idlg"),
         f"labels inferred (iDLG); a start that runs off is taken anew; {deep}"),
        (geiping, "inverting gradients, untrained LeNet", "18.00 ± 3.33 dB", mean("lenet-1"),
         f"total variation chosen on other images; 2,000 steps; {deep}"),
        (geiping, "inverting gradients, untrained ResNet-20", "19.83 ± 2.96 dB", mean("resnet20-untrained"), few),
        (geiping, "inverting gradients, trained ResNet-20", "13.95 ± 3.38 dB", mean("resnet20-trained"),
         f"{few}; trained on 1,500 images"),
        ("Zhao et al. 2020", "iDLG, labels of single images", "100%", f"{100 * right / asked:.1f}%",
         "CIFAR-10 for MNIST, CIFAR-100 and LFW; three untrained networks"),
    ]  # fmt: skip


def values() -> dict[str, Any]:
    """What templates may use."""
    found = inversion()
    return {"inversion": found, "curves": curves(), "papers_figures": published(found)}
