"""Chains of any model on any table: sampling, checkpoints, diagnostics."""
