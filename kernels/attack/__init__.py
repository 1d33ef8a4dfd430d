"""Importance weights of an attack on synthetic files."""
