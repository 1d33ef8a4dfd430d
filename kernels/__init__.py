"""Gibbs kernels: pure functions of arrays that jit and vmap, and that a notebook can recombine."""
