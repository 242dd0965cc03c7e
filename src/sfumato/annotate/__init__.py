"""Pages on which people name the things they recognise in reconstructions; their results."""

from sfumato.annotate.campaign import CampaignConfig, Pair, draw_balanced, read_pairs
from sfumato.annotate.folder import Campaign, create

__all__ = ["Campaign", "CampaignConfig", "Pair", "create", "draw_balanced", "read_pairs"]
