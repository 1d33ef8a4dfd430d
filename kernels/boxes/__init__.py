"""Probabilities of boxes of cells, and counts shared out among the parts of their levels."""
