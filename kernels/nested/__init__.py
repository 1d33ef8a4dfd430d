"""Conditionals of the nested model of persons within households."""
