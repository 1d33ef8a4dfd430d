"""``python -m bnp_models``: the command ``bnp-models``."""

from bnp_models.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
