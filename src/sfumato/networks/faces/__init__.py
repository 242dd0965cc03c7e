"""Networks that find faces, align them and tell people apart."""
