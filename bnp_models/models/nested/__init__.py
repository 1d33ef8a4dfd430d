"""Nested latent classes of households and their members: NDPMPM."""
