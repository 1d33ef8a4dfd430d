"""Mixed membership of records: the HDP, and its version with a fixed number of profiles."""
