"""Networks that draw images: denoisers and decoders."""
