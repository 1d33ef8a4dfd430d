"""Disclosure risk: uniques in the population, and the risk of every record or cell."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
