"""Item 16: JSON files against their schemas."""

import json
from importlib.util import find_spec

import bnp_models as bnp

for name in ("risk.json", "run.json"):
    document = json.load(open(f"risk/{name}"))
    schema = bnp.io.json_schema(name)
    if find_spec("jsonschema"):
        import jsonschema

        jsonschema.validate(document, schema)
        print(name, "is valid")
    print(name, "entries unknown to the schema:", *(set(document) - set(schema["properties"])))
