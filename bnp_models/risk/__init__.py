"""Disclosure risk: uniques in the population, and the risk of every record or cell."""
