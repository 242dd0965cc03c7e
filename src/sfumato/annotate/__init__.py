"""The annotation page, on which people name the things they recognise in reconstructions; its results."""

from sfumato.annotate.campaign import CampaignConfig, Pair, draw_balanced, read_pairs
from sfumato.annotate.store import Store, create

__all__ = ["CampaignConfig", "Pair", "Store", "create", "draw_balanced", "read_pairs"]
