"""Models of the cells of a weighted sample: the Polettini-Stander hierarchy and related models."""
