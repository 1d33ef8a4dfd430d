"""Laws of population counts given sample counts of cells."""
