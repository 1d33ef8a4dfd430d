"""Item 3: the order of levels."""

import bnp_models as bnp

table = bnp.read_microdata("plain.csv")
print(*table.schema.levels[list(table.schema.variables).index("salary")], sep=" < ")
