"""Item 9: what drives the risk, in risk.json: `python drivers.py DIR`."""

import json
import sys

risk = json.load(open(f"{sys.argv[1]}/risk.json"))
print(str(risk.get("contributions"))[:300])
print(str(risk.get("what_if"))[:300])
