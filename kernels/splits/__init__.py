"""Proposals to split a component or class into two, or to merge two of them.

Three moves use them: `kernels.latent_classes.split_merge`, `kernels.mixed_membership.split_merge`
(weights and level probabilities integrated out), and
`kernels.mixed_membership.truncated_split_merge` (under structural zeros). The formula of their
acceptance is in `kernels.splits.proposal`.
"""

import pkgutil

import lazy_loader

_modules = {module.name for module in pkgutil.iter_modules(__path__)}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, _modules)
