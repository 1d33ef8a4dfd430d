"""Population counts of cells given sample counts."""
