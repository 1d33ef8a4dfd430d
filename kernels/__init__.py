"""Gibbs kernels: pure functions of arrays, from which a notebook can build new samplers.

`jax.jit` and `jax.vmap` can be applied to them. The folders and their modules are imported when
they are first used: ``dir(bnp_models.kernels)`` lists the folders, and
``dir(bnp_models.kernels.variates)`` the modules of one.
"""

import pkgutil

import lazy_loader

_modules = {module.name for module in pkgutil.iter_modules(__path__)}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, _modules)
