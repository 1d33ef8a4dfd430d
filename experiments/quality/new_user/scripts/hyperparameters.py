"""Item 4: which hyperparameters a run has used: `python hyperparameters.py DIR`."""

import json
import sys

risk = json.load(open(f"{sys.argv[1]}/risk.json"))
for key, value in risk.items():
    if "hyper" in key or key in ("alpha", "a", "b"):
        few = {k: v.get("mean") if isinstance(v, dict) else v for k, v in value.items()} \
            if isinstance(value, dict) else value  # fmt: skip
        print(f"{key}: {few}")
print("tau1:", {k: round(v, 2) for k, v in risk["tau1"].items() if isinstance(v, float)})
