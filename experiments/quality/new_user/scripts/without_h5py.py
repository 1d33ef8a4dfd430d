"""Item 1: what is left of a run where a library of its last file is missing, as on 3.12."""

import sys

sys.modules["h5py"] = None
from bnp_models.cli.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
