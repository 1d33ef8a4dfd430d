"""Coded microdata of persons and households, and the files they come from and go to."""
