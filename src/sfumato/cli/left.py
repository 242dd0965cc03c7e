"""Commands and options that left, and what to use instead: said to those who still type them."""

LEFT = {
    "annotate new --store": "`sfumato annotate new --out FOLDER`",
    "annotate serve": "a page in one file for each annotator, annotator-N.html of `sfumato annotate new`,",
    "assess --sort-by": "a column of pairs.csv, by `sfumato assess images ORIGINALS OTHERS --out DIR`,",
    "attack reidentify": "`sfumato audit folder RELEASED --known PHOTOS --protection SPEC`",
    "attack feature": "`sfumato audit feature`",
    "attack invert": "`sfumato audit update --search NAME --out DIR`",
    "attack labels": "`sfumato audit update --search none`",
    "attack first-layer": "`sfumato audit update --search none --out DIR`",
    "attack": "`sfumato audit update`, `sfumato audit feature` or `sfumato audit folder --known PHOTOS`",
    "audit folder --originals": "`sfumato assess images ORIGINALS RELEASED`",
    "audit gallery --public": "noise on the device, in the spec of `sfumato enrol --with SPEC`,",
    "audit gallery --epsilon": "noise on the device, in the spec of `sfumato enrol --with SPEC`,",
    "audit protection --one-run": "`sfumato audit protection SPEC --trials N`",
    "audit update --search-steps": "`sfumato audit update --set steps=N`, or `--search none` for no search",
    "classify --batch": "`sfumato classify --table FILE`, which sends nothing, or `sfumato share`",
    "convert": "part of the options that read weights, which take the published file",
    "enroll": "`sfumato enrol`",
    "enrol --average": "`sfumato enrol`, of each image by itself",
    "enrol --at-most-named": "`sfumato assess log-rank`, which prints how many are named at best",
    "edge": "the script studies/device_cost.py",
    "keys list --tenant": "`sfumato keys list`, of all tenants",
    "keys tenant": "`sfumato keys create TENANT NAME --new-tenant`",
    "ledger naming": "`sfumato ledger show --person NAME`",
    "ledger budget --folder": "`sfumato protect --people`, and `sfumato ledger budget --person NAME`",
    "protect --dry-run": "`sfumato protect` into a folder and with a --ledger that you delete afterwards",
    "protect --detector": "`sfumato protect --where faces:file=FILE`",
    "protect --margin": "`sfumato protect --where faces:margin=0.25`",
    "protect --no-face": "`sfumato protect --where faces:missing=all`",
    "protect --preview": "`sfumato data sheet`, of the originals and of the releases,",
    "show --markdown": "`sfumato show --html`, or `--json` for programs,",
    "serve --example-epsilon": "noise on the device, in the spec of `sfumato enrol --with SPEC`,",
    "train code --bits": "`sfumato train code --set bits=16`",
    "train code --numbers": "`sfumato train code --set numbers=16`",
    "train meta --algorithm": "`sfumato train meta --set algorithm=maml`",
    "train meta --epsilon": "`sfumato train meta --set private.epsilon=8`",
    "train meta --delta": "`sfumato train meta --set private.delta=1e-5`",
    "train meta --clipping": "`sfumato train meta --set private.clipping=fixed`",
    "train meta --clip": "`sfumato train meta --set private.settings.start=1`",
    "train meta --source": "`sfumato train meta --data FILE.yaml`, a study file with settings of its data",
}
"""Words that were typed -> their replacement: commands and options of today in backticks.

The first row that fits is said, so rows of a command's own commands stand before it.
"""


def advise(words: list[str]) -> str:
    """Say what a command or option among the words after `sfumato` is now; empty if none of them left."""
    parts = [part for word in words for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    while parts and parts[0].startswith("-"):  # options of the program itself
        parts.pop(0)
    typed = f" {' '.join(parts)} "
    for row, now in LEFT.items():
        command, _, option = row.partition(" -")
        if typed.startswith(f" {command} ") and (not option or f" -{option} " in typed):
            return f"`{row}` is {now} now"
    return ""
