"""Gibbs kernels: pure functions of arrays that jit and vmap, and that a notebook can recombine.

Their folders, with all their modules, are imported when they are first used:
``dir(bnp_models.kernels)`` lists them, and ``dir(bnp_models.kernels.variates)`` those of one.
"""

import pkgutil

import lazy_loader

_modules = {module.name for module in pkgutil.iter_modules(__path__)}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, _modules)
