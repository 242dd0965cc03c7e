"""Networks that turn images into features, and their public weights."""
