"""Coded microdata of persons and households, and the files they come from and go to."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
