"""The judge: originals and guesses in, numbers out."""
