"""Proposals to split a component or class in two, or to merge two."""
