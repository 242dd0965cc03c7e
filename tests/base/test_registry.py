"""What people add: by a program here; by a package in tests/study/test_own_parts.py."""

from importlib.metadata import EntryPoint

import pytest
import torch

from sfumato import protect
from sfumato.base import registry
from sfumato.errors import ConfigError, SpecError
from sfumato.networks.classifiers import ENCODERS, make_encoder
from sfumato.networks.encoders.small import Conv4
from sfumato.protect.pixels import Clear
from sfumato.protect.spec import PROTECTIONS
from sfumato.study.vocabulary import ATTACKS, AttackWords


def test_a_registered_protection_or_encoder_is_found_by_its_name(registering):
    registering("protections", "plain", "sfumato.protect.pixels:Clear")
    assert protect.parse("plain") == Clear()
    with pytest.raises(SpecError, match="'plane': did you mean 'plain'"):
        protect.parse("plane")
    registering("encoders", "small", lambda channels, pools: Conv4(channels, pools=pools, width=8))
    assert make_encoder("small", 3, pools=2)(torch.zeros(1, 3, 8, 8)).shape == (1, 8 * 2 * 2)


@pytest.mark.parametrize(
    ("group", "name", "thing", "message"),
    [
        ("protection", "plain", Clear, "no group 'protection': did you mean 'protections'"),
        ("protections", "blur", Clear, "'blur' of protections is taken: choose another name"),
    ],
)
def test_what_cannot_be_registered_is_refused(registering, group, name, thing, message):
    with pytest.raises(ConfigError, match=message):
        registering(group, name, thing)


@pytest.mark.parametrize(
    ("table", "group", "thing", "message"),
    [
        (ATTACKS, "adversaries", 7, r"adversary 'odd': it is int: register a vocabulary\.AttackWords"),
        (ATTACKS, "adversaries", AttackWords("even", "values", True, ""), "it calls itself 'even': use one"),
        (ENCODERS, "encoders", 7, "encoder 'odd': it is int: register a function"),
        (PROTECTIONS, "protections", 7, "protection 'odd': register a frozen dataclass"),
        (PROTECTIONS, "protections", EntryPoint, "protection 'odd': register a frozen dataclass"),
        (PROTECTIONS, "protections", "no_such:Odd", "'odd' cannot be imported from no_such:Odd"),
    ],
)
def test_a_thing_that_does_not_fit_its_group_is_refused_by_name(registering, table, group, thing, message):
    registering(group, "odd", thing)
    with pytest.raises(ConfigError, match=message):
        table["odd"]


def test_two_packages_with_one_name_are_both_named(monkeypatch):
    class Named(EntryPoint):
        @property
        def dist(self):
            return type("Package", (), {"name": self.value, "version": "1"})

    points = [Named("odd", value, "sfumato.protections") for value in ("one", "two")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    registry._entry_points.cache_clear()
    with pytest.raises(ConfigError, match=r"'odd' of protections .* package one 1 and of the package two 1"):
        PROTECTIONS["odd"]
    registry._entry_points.cache_clear()


def test_a_thing_that_workers_cannot_get_is_refused_before_they_start(registering):
    registering("measures", "odd", lambda first, second: first)
    with pytest.raises(
        ConfigError, match=r"'odd' of measures cannot be sent to workers .* or use --workers 1"
    ):
        registry.list_added()
