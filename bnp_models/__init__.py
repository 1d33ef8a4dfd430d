"""Bayesian non-parametric models for categorical microdata, on JAX."""
