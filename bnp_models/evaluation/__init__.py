"""Synthetic files judged by their original: utility, impossible records, attacks."""
