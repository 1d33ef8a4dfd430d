# ruff: noqa: E501
"""What is tried: commands of a new user, by the item of the list."""

from typing import NamedTuple

SMALL = "--model nplcm --components 6 --chains 2 --warmup 100 --draws 300"
VARIABLES = {"SMALL": SMALL, "N": "--population-size 228421"}

ITEMS = {
    1: "Install and run",
    2: "Identifiers and exact values",
    3: "Files as people have them",
    4: "Polettini-Stander",
    5: "Data frames",
    6: "How objects are displayed",
    7: "InferenceData",
    8: "A user's own loop",
    9: "Decisions",
    10: "Files that go on",
    11: "Conditions and rules",
    12: "Warnings of the synthetic run",
    13: "Waiting and stopping",
    14: "Wrong arguments, examples",
    15: "Pages",
    16: "Formats and options",
    17: "Documentation",
    18: "Libraries",
}


class Case(NamedTuple):
    """One command, and how much of what comes out is shown."""

    item: int
    command: str
    lines: int = 3
    characters: int = 420
    where: str = "scratch"
    """Or "clone"."""
    warnings: bool = False
    """Whether lines of warnings are shown: those of short chains tell nothing here."""


INSTALL = Case(
    1, "pip install -q '.[formats]' && pip list | grep -iE '^(h5py|jax|arviz) '", where="clone"
)
# These make what the others read, and are run with --only too.
FIRST = [
    Case(1, "bnp-models risk sample.csv $N $SMALL --out risk", 4),
    Case(1, "bnp-models synthesize sample.csv $SMALL --datasets 2 --out synthetic", 3),
]

CASES = [
    Case(1, "python without_h5py.py risk sample.csv $N $SMALL --out no_h5py; ls no_h5py", 8),
    Case(2, "bnp-models risk people.csv $N $SMALL --out people", 3, 700),
    Case(2, "bnp-models synthesize people.csv $SMALL --datasets 1 --out copied "
            "&& python copied.py person_number salary", 2, 700),
    Case(2, "bnp-models synthesize people.csv --allow-identifying $SMALL --datasets 1 --out asked "
            "&& python words.py asked/report.html 'one person alone'", 3, 600),
    Case(2, "bnp-models evaluate people.csv people.csv --variables age,salary --bins salary=10 "
            "--merge-rare 20 --out binned | head -1; bnp-models evaluate years.csv years.csv "
            "--variables age,sex --top-code age=80 --out top | head -1", 3, 500),
    Case(3, "bnp-models risk semicolon_cp1252.csv $N $SMALL --out semicolon", 4, 500),
    Case(3, "python files.py", 8, 900),
    Case(3, "bnp-models risk codes.csv $N $SMALL --out codes", 6, 800, warnings=True),
    Case(3, "bnp-models risk codes.csv --missing -9,NA $N $SMALL --out missing", 3, 500),
    Case(3, "python levels.py", 2),
    Case(4, "bnp-models risk sample.csv --variables age,sex,race $N --model polettini-stander-1 --out ps1 "
            "&& python hyperparameters.py ps1", 6, 600),
    Case(5, "python frames.py", 8, 900),
    Case(6, "python reprs.py", 8, 700),
    Case(6, "python -c \"import bnp_models as bnp; "
            "print(repr(bnp.read_microdata('sample.csv')))\" | cut -c 1-160 | head -6", 6, 400),
    Case(7, "python arviz_groups.py", 9, 1100),
    Case(8, "python own_loop.py", 3),
    Case(9, "bnp-models risk sample.csv $N $SMALL --max-tau1 5 --strict --title 'Wave 3' "
            "--author 'A. Person' --out judged", 4, 600),
    Case(9, "python words.py judged/report.html 'release:|SHA-256|Wave 3|A. Person'", 4, 500),
    Case(9, "bnp-models protect sample.csv $N $SMALL --max-tau1 0.2 --out protected "
            "&& ls protected", 12, 800),
    Case(9, "python drivers.py risk", 4, 500),
    Case(10, "bnp-models risk formulas.csv --id id --bom $N $SMALL --out withid "
             "&& head -3 withid/records.csv | cat -A", 3, 500),
    Case(10, "bnp-models risk formulas.csv --variables age,sex,race,marital_status,education,"
             "class_of_worker $N $SMALL --out formulas && head -3 formulas/records.csv", 3, 500),
    Case(10, "bnp-models synthesize sample.csv --keep age,sex $SMALL --datasets 1 --out kept "
             "&& cut -d, -f1,2 kept/synthetic_1.csv | cmp - <(cut -d, -f1,2 sample.csv) "
             "&& echo 'age and sex are those of the sample'", 2),
    Case(10, "bnp-models synthesize people.csv --variables age,sex,education --keep age,sex "
             "--carry person_number $SMALL --datasets 1 --out carried", 2, 600),
    Case(11, "bnp-models risk years.csv --variables age,sex,marital_status $N "
             "--conditions zeros.csv --model tnplcm --components 6 --chains 2 --warmup 100 "
             "--draws 100 --out impossible", 6, 900),
    Case(11, "bnp-models risk years.csv --variables sex,marital_status $N "
             "--conditions zeros.csv --model tnplcm --out wrong", 2, 500),
    Case(11, "bnp-models risk sample.csv $N --conditions zeros_of_bands.csv --model tnplcm "
             "--components 6 --chains 2 --warmup 100 --draws 100 --out bands", 3, 500),
    Case(11, "bnp-models risk sample.csv $N --conditions header_only_zeros.csv --model tnplcm "
             "--components 6 --chains 2 --warmup 100 --draws 100 --out h1", 2),
    Case(11, "bnp-models risk header_only.csv $N $SMALL --out h2", 2),
    Case(11, "bnp-models risk no_records.csv $N $SMALL --out h3", 2),
    Case(11, "bnp-models conditions suggest sample.csv --out suggested.csv; "
             "head -4 suggested.csv", 6, 700),
    Case(11, "bnp-models risk sample.csv --conditions suggested.csv $N --model tnplcm "
             "--out unconfirmed", 2, 500),
    Case(11, "bnp-models conditions check years.csv --conditions zeros.csv --out broken.csv; "
             "cat broken.csv", 5, 700),
    Case(11, "bnp-models evaluate haushalte.csv haushalte.csv --household hid "
             "--rules rules.yaml --out haus", 3, 500),
    Case(11, "bnp-models evaluate haushalte.csv haushalte.csv --household hid "
             "--rules census-relationships --roles roles.csv --out roles", 3, 500),
    Case(12, "bnp-models synthesize sample.csv --model nplcm --components 6 --chains 1 "
             "--warmup 0 --draws 10 --datasets 2 --out bad", 5, 900, warnings=True),
    Case(12, "bnp-models evaluate sample.csv bad/synthetic_*.csv --out judged_bad", 6, 900, warnings=True),
    Case(12, "grep -o 'class=.box[^>]*' judged_bad/report.html; python words.py "
             "judged_bad/report.html 'one chain only'", 4, 500),
    Case(13, "timeout --foreground --preserve-status -s INT 150 bnp-models risk sample.csv $N --chains 2 "
             "--draws 100000 --out long 2> long.err; echo exit code $?; tail -7 long.err; ls long", 10, 1200),
    Case(13, "timeout --foreground --preserve-status -s TERM 20 bnp-models risk sample.csv $N --model nplcm "
             "--components 6 --chains 2 --draws 200000 --out term; echo exit code $?", 4, 700),
    Case(13, "timeout --foreground --preserve-status -s INT 15 bnp-models risk sample.csv $N --model nplcm "
             "--components 6 --chains 2 --draws 2000 --thin 10 --out stopped; echo exit code $?; "
             "bnp-models risk sample.csv $N --model nplcm --components 6 --chains 2 "
             "--draws 2000 --thin 10 --out stopped --resume", 9, 1200),
    Case(13, "bnp-models risk sample.csv $N $SMALL --out risk; echo exit code $?", 2),
    Case(13, "bnp-models risk sample.csv --population-size 1e6 $SMALL --out million", 2),
    Case(13, "bnp-models risk sample.csv --population-size 1,000,000 $SMALL --out commas", 2),
    Case(14, "python arguments.py", 9, 1200),
    Case(14, "python doctests.py", 2, 600),
    Case(14, "python -c 'import bnp_models; print(*dir(bnp_models.kernels))'", 1, 300),
    Case(15, "python page.py risk/report.html", 3, 700),
    Case(15, "bnp-models evaluate sample.csv synthetic/synthetic_*.csv --out evaluated "
             "&& python page.py evaluated/report.html", 3, 700),
    Case(16, "bnp-models risk sample.csv $N $SMALL --format parquet --out parquet && ls parquet", 9),
    Case(16, "bnp-models --print-completion bash | head -3", 3),
    Case(16, "printf '[risk]\\nmodel = \"nplcm\"\\ncomponents = 6\\nchains = 2\\nwarmup = 100\\n"
             "draws = 100\\n' > run.toml; "
             "bnp-models risk sample.csv $N --config run.toml --out toml && cat toml/run.toml", 16, 600),
    Case(16, "bnp-models risk --config risk/run.toml --out again "
             "&& cmp risk/records.csv again/records.csv && echo the same records.csv", 2, 400),
    Case(16, "pip install -q jsonschema 2>&1 | grep -v WARNING; python schemas.py", 4),
    Case(16, "bnp-models synthesize long_names.csv $SMALL --datasets 1 --format dta --out dta "
             "&& python dta.py dta/synthetic_1.dta", 5, 700),
    Case(17, "ls docs; make -n docs | tail -1", 16, 500, "clone"),
    Case(17, "grep -n -A2 'Which model' README.md; grep -n '!\\[' README.md", 6, 500, "clone"),
    Case(18, "python imports.py", 3),
    Case(18, "grep -rln false_discovery_control bnp_models; grep -n pyreadstat pyproject.toml; "
             "grep -rn 'beartype' pyproject.toml constraints", 6, 400, "clone"),
]  # fmt: skip
