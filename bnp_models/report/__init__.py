"""Summaries, files for ArviZ, and self-contained HTML pages."""
