"""Item 14: public functions and classes that have an example."""

import inspect

import bnp_models as bnp

names = [n for n in bnp.__all__ if callable(getattr(bnp, n)) and n[0] != "_"]
without = [n for n in names if ">>>" not in (inspect.getdoc(getattr(bnp, n)) or "")]
print(f"{len(names) - len(without)} of {len(names)} public names have an example")
print(*without[:12])
