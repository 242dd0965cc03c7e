"""The party that holds the originals: what leaves it is charged in its ledger first."""
