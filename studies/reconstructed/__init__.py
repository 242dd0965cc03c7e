"""Whether measures of reconstructions agree with judges: the parts of studies/reconstruction.py."""
