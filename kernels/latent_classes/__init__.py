"""Conditionals of latent class models, plain and truncated."""
