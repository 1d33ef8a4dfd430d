"""Models: each gives initial states and sweeps that leave its posterior invariant."""
