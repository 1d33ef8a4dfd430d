"""Structural zeros of records: conditions compiled into boxes, diagrams and equivalences."""
