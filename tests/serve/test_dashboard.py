"""Grafana's dashboard and the alerts of the deployment guide: each query asks for what the service counts."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from sfumato.serve.metrics import Metrics

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "sfumato.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def alerts() -> list[str]:
    text = (ROOT / "docs" / "deployment.md").read_text()
    (block,) = re.findall(r"```yaml\n(groups:.*?)```", text, flags=re.DOTALL)
    return [rule["expr"] for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]


def test_queries_ask_for_series_and_labels_that_the_service_exports_and_the_dashboard_shows_all():
    metrics = Metrics(lambda: 0)
    metrics.count_answer("POST", "/v1/classifiers/{classifier}/classify", 200, 0.01)
    metrics.count_pass(4, 0.01)
    metrics.count_not_protected()
    exported: dict[str, set[str]] = {}  # the names of all series, and the labels of each
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    for query in [*QUERIES, *alerts()]:
        names = set(re.findall(r"\bsfumato_\w+", query))
        assert names
        assert names <= set(exported), query
        grouped = [label for group in re.findall(r"by \((.*?)\)", query) for label in group.split(", ")]
        asked = {*re.findall(r"(\w+)(?:=~|!=|!~|=)\"", query), *grouped}
        assert asked <= set.union(*(exported[name] for name in names)), query
    ends = re.compile(r"_(total|created|bucket|sum|count)$")
    shown = {ends.sub("", name) for query in QUERIES for name in re.findall(r"\bsfumato_\w+", query)}
    assert shown == {ends.sub("", name) for name in exported}
