"""Conditionals of mixed membership models: the Chinese restaurant franchise and its moves."""
