"""Item 3: files as people have them."""

import logging

import bnp_models as bnp

logging.basicConfig(format="%(message)s")
for name in ("semicolon_cp1252.csv", "tab_utf16.txt", "packed.csv.gz", "sheet.xlsx"):
    try:
        schema = bnp.read_microdata(name).schema
        print(f"{name}: {dict(zip(schema.variables, schema.num_levels, strict=True))}", flush=True)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:90]}", flush=True)
