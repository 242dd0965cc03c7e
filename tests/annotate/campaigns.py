"""What an annotator's page knows and saves, as tests need it."""

import json
import re
from pathlib import Path
from typing import Any

from sfumato.annotate import Campaign


def content_of(campaign: Campaign, annotator: int = 1) -> dict[str, Any]:
    """What the page of an annotator knows."""
    page = (campaign.path / f"annotator-{annotator}.html").read_text()
    found = re.search(r'<script type="application/json" id="campaign">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def saved(campaign, annotator, answers, changed=None, *, name="") -> Path:
    """The file that an annotator's page saves with these answers by item; some of its values changed."""
    given = [
        {"item": campaign.items[number].key, "answer": answer, "time": 1.75e9 + place}
        for place, (number, answer) in enumerate(answers.items())
    ]
    content = {
        "campaign": content_of(campaign)["campaign"],
        "annotator": f"annotator {annotator}",
        "kind": "people",
        "browser": f"{annotator}",
        "saved": 1.76e9,
        "answers": given,
    }
    path = campaign.path / "answers" / (name or f"annotator-{annotator}.json")
    path.write_text(json.dumps(content | (changed or {})))
    return path


def say(campaign: Campaign, said: dict[int, list[str | None]]) -> Campaign:
    """The campaign after annotators 1, 2, ... answered these items; None for no answer."""
    for annotator in range(1, campaign.config.annotators + 1):
        mine = {
            number: answers[annotator - 1] for number, answers in said.items() if annotator <= len(answers)
        }
        saved(campaign, annotator, {number: answer for number, answer in mine.items() if answer is not None})
    return Campaign(campaign.path)
