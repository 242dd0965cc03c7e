"""The adversary: a release in, a guess at the original out."""
