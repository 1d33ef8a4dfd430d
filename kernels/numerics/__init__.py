"""Numerical building blocks: counts, ratios of gamma functions, set partitions, lanes."""
