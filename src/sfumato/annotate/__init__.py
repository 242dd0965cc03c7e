"""The page on which people say what they recognise in reconstructions, and what their answers say."""

from sfumato.annotate.campaign import CampaignConfig, Pair, balanced, read_pairs
from sfumato.annotate.store import Store, create

__all__ = ["CampaignConfig", "Pair", "Store", "balanced", "create", "read_pairs"]
