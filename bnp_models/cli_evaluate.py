"""``bnp-models evaluate``: synthetic files judged by their original."""

import argparse
import functools
from pathlib import Path

import bnp_models as bnp
from bnp_models.cli_folder import UsageError, command_line, into_folder, located, shows_progress
from bnp_models.cli_parser import flag

_OUTPUTS = ("evaluation.json", "report.html")
_OF_HOUSEHOLDS = ("household_variables", "rules", "quantities")


def evaluate(options: argparse.Namespace, argv: list[str]) -> int:
    """Check everything, judge the files, write what was found."""
    original, synthetic, population, conditions, quantities = _checked_input(options)
    names = _names_of(options.synthetic)

    def work(out):
        for name in _OUTPUTS:
            (out / name).unlink(missing_ok=True)
        tell, close = _progress(options)
        try:
            found = bnp.evaluate(
                original, synthetic, population=population, conditions=conditions,
                quantities=quantities, combining=options.combining, seed=options.seed,
                progress=tell,
            )  # fmt: skip
        finally:
            close()
        command = command_line(argv)
        bnp.write_evaluation_report(
            out / "report.html", found, names, command=command, records=not options.no_records
        )
        summary = found.summary(names)
        settings = {
            "command": command,
            "original_sha256": original.digest,
            "synthetic_sha256": [table.digest for table in synthetic],
        }
        bnp.write_json(settings | summary, out / "evaluation.json")
        return _answer(summary, out)

    return into_folder(options, {}, _OUTPUTS, work, "repeat the command")


def _checked_input(options):
    """The coded files, the conditions or rules, and the statements about households."""
    if options.household is None:
        for name in _OF_HOUSEHOLDS:
            if getattr(options, name) is not None:
                raise UsageError(f"{flag(name)}: needs --household, the column of households")
    elif options.conditions is not None:
        raise UsageError("--conditions: are of single records; with --household give --rules")
    read = functools.partial(
        bnp.read_microdata, variables=options.variables, levels=options.levels
    )  # fmt: skip
    if options.household is not None:
        read = functools.partial(
            bnp.read_households, household=options.household,
            household_variables=options.household_variables or (), variables=options.variables,
            levels=options.levels,
        )  # fmt: skip
    original = read(options.original)
    conditions = quantities = None
    if options.conditions is not None:
        conditions = bnp.read_conditions(options.conditions, original.schema)
        try:
            # Compiled now: conditions that are too many are refused before anything is done.
            _ = conditions.diagram, conditions.walk
        except bnp.MicrodataError as error:
            raise error.in_file(options.conditions) from None
    if options.rules is not None:
        conditions = bnp.read_rules(options.rules, original)
    if options.quantities is not None:
        quantities = bnp.read_rules(options.quantities, original)
    if conditions is not None:
        with located(options.original, options.variables):
            conditions.require_feasible(original)
    files = [(path, bnp.read_like(path, original)) for path in options.synthetic]
    population = None
    if options.population is not None:
        population = bnp.read_like(options.population, original)
        files.append((options.population, population))
    for path, table in [(options.original, original), *files]:
        persons = getattr(table, "persons", table)
        if not (persons.codes >= 0).all(axis=1).any():
            raise UsageError(f"{path}: no record has values of all variables; choose --variables")
    synthetic = [table for _, table in files[: len(options.synthetic)]]
    return original, synthetic, population, conditions, quantities


def _names_of(paths):
    """What the files are called: by their names alone, if these differ."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _progress(options):
    """What shows how far it is, and what ends that."""
    if not shows_progress(options):
        return None, lambda: None
    from tqdm import tqdm

    bars = []

    def tell(what, done, of):
        if not bars or bars[-1].desc != what:
            if bars:
                bars[-1].close()
            bars.append(tqdm(total=of, desc=what, leave=False))
            bars[-1].desc = what
        bars[-1].update(done - bars[-1].n)

    return tell, lambda: bars and bars[-1].close()


def _answer(summary, out):
    number = len(summary["files"])
    lines = []
    for order, row in summary["proportions"].items():
        if row["overlap"] is not None:
            lines.append(
                f"{order}-way proportions: intervals overlap the original's by "
                f"{100 * row['overlap']:.0f}%, and cover its proportion in "
                f"{100 * row['covers_original']:.0f}% of {row['cells_judged']:,} cells"
            )
    for kind, score in summary["pmse"].items():
        lines.append(
            f"pMSE by {kind.replace('_', ' ')}: {score['ratio']:.2f} times its expected value"
        )
    uniques = summary["replicated_uniques"]
    if uniques["uniques"]:
        share = sum(uniques["found"]) / number / uniques["uniques"]
        lines.append(
            f"{100 * share:.1f}% of the original's {uniques['uniques']:,} unique combinations "
            "occur in a synthetic file, on average"
        )
    lines += [f"warning: {sentence}" for sentence in summary["warnings"]]
    lines.append(f"written: {out / 'report.html'}, evaluation.json")
    return "\n".join(lines)
