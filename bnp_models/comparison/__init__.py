"""Models side by side, by evidence: held-out prediction, predictive checks, and the risk."""
