"""Grafana's dashboard and the alerts of the deployment guide: each query asks for what the service counts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
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


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The names of all series of a service that has answered, and the labels of each."""
    metrics = Metrics(lambda: 0)
    metrics.count_answer("POST", "/v1/classifiers/{classifier}/classify", 200, 0.01)
    metrics.count_pass(4, 0.01)
    metrics.count_not_protected()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


@pytest.mark.parametrize("query", [*QUERIES, *alerts()])
def test_a_query_asks_for_series_and_labels_that_the_service_exports(
    query: str, exported: dict[str, set[str]]
):
    names = re.findall(r"\bsfumato_\w+", query)
    assert names
    assert set(names) <= set(exported)
    known = set.union(*(exported[name] for name in names))
    selected = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", query)
    grouped = [label for group in re.findall(r"by \((.*?)\)", query) for label in group.split(", ")]
    assert set(selected) | set(grouped) <= known


def test_every_family_that_the_service_counts_is_on_the_dashboard(exported: dict[str, set[str]]):
    def family(name: str) -> str:
        return re.sub(r"_(total|created|bucket|sum|count)$", "", name)

    shown = {family(name) for query in QUERIES for name in re.findall(r"\bsfumato_\w+", query)}
    assert shown == {family(name) for name in exported}
