"""Draw errors by rule that nobody chose, and see whether the tests fail.

python experiments/quality/mutations/mutants.py run 600 --seed 1         # goes on where it stopped
python experiments/quality/mutations/mutants.py run 600 --seed 1 --long  # survivors, by long tests
python experiments/quality/mutations/mutants.py table 1 2                # shares and survivors
"""

import argparse
import ast
import copy
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from coverage import CoverageData
from run import LONGEST, ROOT, copy_tree, run_tests

HERE = Path(__file__).resolve().parent
VERDICTS = HERE / "verdicts.json"

# Of the tests that run what is changed, at the most.
SECONDS_OF_TESTS = 150
# As a report of pytest has it: folders, the file, and a class of tests if there is one.
CLASS_NAME = re.compile(r"(.*?)(\btest_\w+)((?:\.\w+)*)")
SHARED_RUNS = re.compile(r"def \w+\([^)]*\b(small|latent|with_draws)\b")

ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.MatMult: ast.Mult,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
LOGIC = {ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}


class Mutant(NamedTuple):
    """A change of one expression or statement."""

    file: str
    line: int
    rule: str
    start: int
    """First byte that is replaced."""
    end: int
    before: str
    after: str


def changes(node: ast.AST, known: set[str]) -> Iterator[tuple[str, ast.AST | None]]:
    """Rules that apply to a node, and what each puts in its place; None: nothing.

    `known` has the names that the function has bound before.
    """

    def changed(**fields):
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield "operator", changed(op=ARITHMETIC[type(op)]())
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in LOGIC:
            yield "logic", changed(op=LOGIC[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield "logic", operand
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARISONS:
            yield "comparison", changed(ops=[COMPARISONS[type(op)](), *rest])
        case ast.IfExp(body=body, orelse=orelse):
            yield "branches", changed(body=orelse, orelse=body)
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2 * value if value else 1.0)
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=None)):
            one = ast.Constant(1)
            if upper is not None:
                less = ast.Slice(lower, ast.BinOp(upper, ast.Sub(), one))
                yield "slice", changed(slice=less)
            if lower is not None:
                more = ast.Slice(ast.BinOp(lower, ast.Add(), one), upper)
                yield "slice", changed(slice=more)
        case ast.Assign(targets=[target]) if names_of(target) and names_of(target) <= known:
            yield "stale", None
    if isinstance(node, ast.Call) and not any(isinstance(x, ast.Starred) for x in node.args):
        name = ast.unparse(node.func)
        if name.endswith("where") and len(node.args) == 3:
            yield "branches", changed(args=[node.args[0], node.args[2], node.args[1]])
        else:
            for i in range(len(node.args) - 1):
                args = list(node.args)
                args[i], args[i + 1] = args[i + 1], args[i]
                yield "arguments", changed(args=args)
        for i, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                yield "keyword", changed(keywords=node.keywords[:i] + node.keywords[i + 1 :])


def names_of(target: ast.AST) -> set[str]:
    """Names that are assigned to; none where anything else is."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names if len(names) == len(parts) else set()


# What is said to people, what type checkers read, and what names a step for a profiler.
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arg, ast.AnnAssign)
NAMING = ("named_scope", "warn", "add_argument", "tqdm")


def sites(function: ast.FunctionDef, known: set[str]) -> Iterator[tuple[ast.AST, set[str]]]:
    """Nodes of a function that may be changed, and the names that are bound before each."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    known = known | {argument.arg for argument in given}

    def walk(node):
        nonlocal known
        if isinstance(node, SKIPPED):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in NAMING:
            return
        if isinstance(node, ast.FunctionDef):
            yield from sites(node, known)
            return
        yield node, set(known)
        for child in ast.iter_child_nodes(node):
            yield from walk(child)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                known = known | names_of(target)

    for statement in function.body:
        yield from walk(statement)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = path.read_bytes()
    starts = np.cumsum([0, *map(len, source.splitlines(keepends=True))])

    def functions(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield child
            elif isinstance(child, ast.ClassDef):
                yield from functions(child)

    for function in functions(ast.parse(source)):
        for node, known in sites(function, set()):
            if not hasattr(node, "lineno"):
                continue
            for rule, new in changes(node, known):
                start = int(starts[node.lineno - 1]) + node.col_offset
                end = int(starts[node.end_lineno - 1]) + node.end_col_offset
                before = source[start:end].decode()
                after = "pass" if new is None else f"({ast.unparse(new)})"
                yield Mutant(
                    str(path.relative_to(ROOT)), node.lineno, rule, start, end, before, after
                )


def compiles(mutant: Mutant) -> bool:
    """Whether the changed file is Python, and another one."""
    source = (ROOT / mutant.file).read_bytes()
    try:
        return ast.dump(ast.parse(planted(mutant, source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def planted(mutant: Mutant, source: bytes) -> bytes:
    """The file with the change."""
    return source[: mutant.start] + mutant.after.encode() + source[mutant.end :]


def draw(number: int, seed: int) -> list[Mutant]:
    """Draw mutants: by folder in proportion to lines, then a rule, a file by lines, and a place."""
    rng = np.random.default_rng(seed)
    files = defaultdict(list)
    for path in sorted([*(ROOT / "bnp_models").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]):
        folder = folder_of(str(path.relative_to(ROOT)))
        if folder != "bnp_models/kernels" and path.name != "__init__.py":
            files[folder].append(path)
    lines = {folder: sum(map(number_of_lines, paths)) for folder, paths in files.items()}
    share = np.array(list(lines.values())) / sum(lines.values()) * number
    counts = np.floor(share).astype(int)
    counts[np.argsort(counts - share)[: number - counts.sum()]] += 1
    found = []
    for paths, count in zip(files.values(), counts, strict=True):
        weights = np.array([number_of_lines(path) for path in paths], float)
        chosen: dict[Mutant, None] = {}
        while len(chosen) < count:
            path = paths[rng.choice(len(paths), p=weights / weights.sum())]
            by_rule = defaultdict(list)
            for mutant in all_of(path):
                by_rule[mutant.rule].append(mutant)
            if by_rule:
                rule = sorted(by_rule)[rng.integers(len(by_rule))]
                mutant = by_rule[rule][rng.integers(len(by_rule[rule]))]
                if compiles(mutant):
                    chosen[mutant] = None
        found += chosen
    return [found[i] for i in rng.permutation(len(found))]


@cache
def number_of_lines(path: Path) -> int:
    return path.read_text().count("\n")


@cache
def all_of(path: Path) -> list[Mutant]:
    return list(mutants_of(path))


class Covering:
    """Which tests run a statement: by the coverage and the seconds of `make coverage`."""

    def __init__(self):
        self.coverage = CoverageData(str(ROOT / ".coverage"))
        self.coverage.read()
        self.seconds: Counter[str] = Counter()
        for case in ElementTree.parse(ROOT / "build" / "tests.xml").iter("testcase"):
            folders, module, classes = CLASS_NAME.fullmatch(case.get("classname")).groups()
            file = f"{folders}{module}".replace(".", "/") + ".py"
            test = "::".join([file, *classes.split(".")[1:], case.get("name")])
            self.seconds[test] += float(case.get("time"))
            self.seconds[file] += float(case.get("time"))
        # Only the first of the tests that share a run is seen to make it.
        files = [x for x in self.seconds if x.endswith(".py")]
        self.sharing = {x for x in files if SHARED_RUNS.search((ROOT / x).read_text())}

    def tests(self, mutant: Mutant, long: bool) -> list[str]:
        """Tests that run the mutant's statement: the nearest by name first, then the quickest.

        Files of tests that look at a run which another test is seen to make come last. Of the long
        tests it is not known what they run: whole files then.
        """
        by_line = self.coverage.contexts_by_lineno(mutant.file)
        contexts = {x for line in statement(mutant) for x in by_line.get(line, ()) if x}
        found = {context.rsplit("|", 1)[0] for context in contexts}
        if {x.split("::")[0] for x in contexts if x.endswith("|setup")} & self.sharing:
            found |= self.sharing
        if long:
            found = {test.split("::")[0] for test in found}
        names = {*Path(mutant.file).parts[:-1], f"test_{Path(mutant.file).stem}.py"}

        def order(test):
            near = len(names & {*test.split("::")[0].split("/")})
            return "::" not in test, -near, self.seconds[test], test

        tests = sorted(found, key=order)
        total = np.cumsum([self.seconds[test] for test in tests])
        return tests[: max(1, int(np.searchsorted(total, SECONDS_OF_TESTS, side="right")))]


def statement(mutant: Mutant) -> range:
    """Lines of the statement that a mutant is in, those of its head if it has a body."""
    around = [
        node
        for node in ast.walk(ast.parse((ROOT / mutant.file).read_bytes()))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= node.end_lineno
    ]
    inner = max(around, key=lambda node: node.lineno)
    last = inner.body[0].lineno - 1 if hasattr(inner, "body") else inner.end_lineno
    return range(inner.lineno, max(inner.lineno, last) + 1)


def run(options) -> None:
    results_file = HERE / f"mutants-{options.seed}.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    drawn = draw(options.number, options.seed)
    covering = Covering()
    if options.long:
        todo = [m for m in drawn if results.get(name_of(m), {}).get("verdict") == "survived"]
    else:
        todo = [m for m in drawn if name_of(m) not in results][: options.most]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = SimpleQueue()
        for i in range(options.jobs):
            copies.put((i, copy_tree(Path(folder) / str(i))))
        # Only what is changed is compiled again when tests begin.
        compile_dir(folder, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        with ThreadPoolExecutor(options.jobs) as pool:
            begun = {pool.submit(judge, m, covering, copies, options.long): m for m in todo}
            for done in as_completed(begun):
                mutant, result = begun[done], done.result()
                results[name_of(mutant)] = mutant._asdict() | result
                print(f"{name_of(mutant)}: {result['verdict']} {result['by']}", flush=True)
                results_file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(Counter(result["verdict"] for result in results.values()))


def name_of(mutant: Mutant) -> str:
    """Of a mutant, wherever its lines have moved to."""
    before, after = (" ".join(text.split())[:70] for text in (mutant.before, mutant.after))
    return f"{mutant.file}:{mutant.line} {mutant.rule}: {before} -> {after}"


def judge(mutant: Mutant, covering: Covering, copies: SimpleQueue, long: bool) -> dict:
    """Whether tests that run the line see the change, and which."""
    core, folder = copies.get()
    file = folder / mutant.file
    source = file.read_bytes()
    prefix = f"taskset -c {core % os.cpu_count()}"
    tests = covering.tests(mutant, long)
    try:
        file.write_bytes(planted(mutant, source))
        if tests:
            # A change may make a loop endless.
            longest = LONGEST if long else 180 + 4 * sum(covering.seconds[x] for x in tests)
            failures, _, _ = run_tests(folder, tests, prefix, long, stop=True, longest=longest)
            if failures:
                test, how, _ = failures[0]
                if how == "no test was collected":
                    raise RuntimeError(f"{name_of(mutant)}: none of {tests} is there")
                return {"verdict": "killed, long" if long else "killed", "by": test,
                        "how": how[:160]}  # fmt: skip
    finally:
        file.write_bytes(source)
        copies.put((core, folder))
    return {"verdict": "survived", "by": "", "how": f"{len(tests)} tests"}


def table(options) -> None:
    """Write mutants.md: the shares that are seen, by folder, and every survivor with a verdict."""
    verdicts = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
    lines = ["# Errors drawn by rule, and the number that tests detect", ""]
    for seed in options.seeds:
        results = json.loads((HERE / f"mutants-{seed}.json").read_text())
        folders = defaultdict(Counter)
        for result in results.values():
            folders[folder_of(result["file"])][result["verdict"]] += 1
            folders["all"][result["verdict"]] += 1
        lines += [
            f"## Seed {seed}", "", "| folder | errors | seen | seen by long tests | share |",
            "|---|---|---|---|---|",
        ]  # fmt: skip
        for folder, count in sorted(folders.items(), key=lambda item: -item[1].total()):
            seen = count["killed"], count["killed, long"]
            share = sum(seen) / count.total()
            lines.append(f"| {folder} | {count.total()} | {seen[0]} | {seen[1]} | {share:.0%} |")
        lines += ["", "| not seen | verdict |", "|---|---|"]
        for name, result in sorted(results.items()):
            if result["verdict"] == "survived":
                shown = name.replace("|", "\\|")
                lines.append(f"| `{shown}` | {verdicts.get(name, 'not judged yet')} |")
        lines.append("")
    (HERE / "mutants.md").write_text("\n".join(lines))


def folder_of(file: str) -> str:
    """Folder of the package that a file is in: that by which errors are drawn."""
    parts = Path(file).parts
    return parts[0] if parts[0] == "kernels" else "/".join(parts[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("number", type=int)
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--most", type=int, help="no more than so many this time")
    one.add_argument("--long", action="store_true", help="survivors, by the long tests")
    one.set_defaults(do=run)
    all_of_them = commands.add_parser("table")
    all_of_them.add_argument("seeds", type=int, nargs="+")
    all_of_them.set_defaults(do=table)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
