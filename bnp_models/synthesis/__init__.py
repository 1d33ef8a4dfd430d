"""Synthetic and completed data sets from the draws of a run."""
