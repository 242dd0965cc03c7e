"""The party that holds the originals: it charges each release in its ledger first."""
