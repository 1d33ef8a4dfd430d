"""Latent class models with stick-breaking weights: NPLCM, and TNPLCM under structural zeros."""
