"""Models. Each provides initial states, and sweeps that leave its posterior invariant."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
