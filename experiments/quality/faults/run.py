"""Try faults on runs of the commands: calls that fail, kills, signals, damaged checkpoints.

python experiments/quality/faults/run.py              # goes on where it stopped
python experiments/quality/faults/run.py --again      # all of them once more
python experiments/quality/faults/run.py --only risk  # those with this in "COMMAND FAULT"
"""

import argparse
import errno
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from injected import (
    FAILS_ONCE,
    FULL_FROM,
    READ_ONLY_FROM,
    SIGNAL,
    build,
    call,
    content,
    emptied,
    environment,
    faults,
    in_short_chunks,
)

import bnp_models as bnp
from bnp_models.cli.folder import locked

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[2] / "build" / "faults"
SAMPLE, OUT, ASIDE = WORK / "sample.csv", WORK / "out", WORK / "aside"
LOG, TABLE = WORK / "results.jsonl", HERE / "results.md"

SHORT = ["--chains", "2", "--warmup", "15", "--draws", "30", "--seed", "1",
         "--checkpoint-seconds", "0"]  # fmt: skip
CHAINS = ["--model", "nplcm", "--components", "3", *SHORT]
COMMANDS = {
    "risk": ["risk", SAMPLE, "--population-size", "1000", *CHAINS],
    "synthesize": ["synthesize", SAMPLE, "--datasets", "2", "--format", "parquet", *CHAINS],
    "evaluate": ["evaluate", SAMPLE, SAMPLE],
    "protect": ["protect", SAMPLE, "--population-size", "1000", "--max-tau1", "3", *CHAINS],
    "compare": ["compare", SAMPLE, "--models", "nplcm:components=3", "--folds", "1", *SHORT],
}

# A call, and those after it: what is done to them, and the error that they end with.
CALLS = {
    "ENOSPC, once": (FAILS_ONCE, errno.ENOSPC),
    "EIO, once": (FAILS_ONCE, errno.EIO),
    "EACCES, once": (FAILS_ONCE, errno.EACCES),
    "disk full from there on": (FULL_FROM, errno.ENOSPC),
    "read-only from there on": (READ_ONLY_FROM, errno.EROFS),
    "SIGTERM": (SIGNAL, signal.SIGTERM),
    "SIGINT": (SIGNAL, signal.SIGINT),
}
TAKES_SPACE = ("open", "write", "truncate", "mkdir")
DAY = 86_400.0
REMEDY = re.compile(r"repeat|choose|delete|wait|--resume")
LONGEST = 90
# Digests, and seconds.
_MANIFEST_CLOCK = re.compile(rb'"sha256": "[0-9a-f]*"|[0-9]+\.[0-9]+(e-[0-9]+)?')

Case = dict[str, object]


class Command:
    """A command, what it writes undisturbed, and what became of the states it was resumed from."""

    def __init__(self, name: str):
        self.name = name
        self.argv = [*map(str, COMMANDS[name]), "--out", str(OUT)]
        self.resuming = [] if name == "evaluate" else ["--resume"]
        self.calls: list[tuple[str, str]] = []
        self.states: dict[int, str] = {}
        self.resumed: dict[str, str] = {}
        emptied(OUT)
        # Once to compile.
        assert call(self.argv) == (0, "")
        emptied(OUT)
        with faults(OUT, watch=self._note):
            assert call(self.argv) == (0, "")
        self.whole = content(OUT)

    def _note(self, number: int, name: str, path: str) -> None:
        """Keep what a process leaves that is killed before this call."""
        self.calls.append((name, str(Path(path).relative_to(OUT))))
        self.states[number] = key = state()
        if not (ASIDE / self.name / key).exists():
            (ASIDE / self.name).mkdir(parents=True, exist_ok=True)
            if OUT.exists():
                shutil.copytree(OUT, ASIDE / self.name / key)

    def set_state(self, number: int) -> None:
        """Make the folder what it is before a call."""
        emptied(OUT)
        aside = ASIDE / self.name / self.states[number]
        if aside.exists():
            shutil.copytree(aside, OUT)

    def points(self) -> list[int]:
        """Numbers of the calls; of many writes to one file in a row the ends, and some between."""
        chosen = []
        for _, group in itertools.groupby(enumerate(self.calls), key=lambda pair: pair[1]):
            numbers = [number for number, _ in group]
            chosen += sorted({*numbers[:2], *numbers[2:-2:16], *numbers[-2:]})
        return chosen

    def judged(self, code: int, said: str, kept: str | None = None) -> tuple[str, str]:
        """What became of a run, and how; `kept` is a file that could not be removed."""
        faults_found = []
        after = content(OUT)
        if "Traceback" in said:
            faults_found.append("a traceback")
        if code == 0:
            if kept in after and kept not in self.whole:
                del after[kept]
            faults_found += differences(after, self.whole)
            if said and "minutes, estimated from the first" not in said:
                faults_found.append("code 0, and something on stderr")
            return verdict("went on", faults_found, code, said)
        whole = {name: after[name] for name in after if name in self.whole}
        right = {name: self.whole[name] for name in whole}
        # It names the files that are there.
        of_both = [{**files, "run.json": _DIGESTS.sub(b"", files["run.json"])}
                   if "run.json" in files else files for files in (whole, right)]  # fmt: skip
        faults_found += differences(*of_both)
        lines = [line for line in said.splitlines() if "once more to stop at once" not in line]
        if len(lines) != 1:
            faults_found.append(f"{len(lines)} lines")
        if code < 128 and str(OUT) not in said:
            faults_found.append("no file is named")
        if not REMEDY.search(said) and "are whole" not in said:
            faults_found.append("no remedy")
        faults_found += self.gone_on()
        return verdict("stopped", faults_found, code, said)

    def gone_on(self) -> list[str]:
        """What is wrong after the command has been repeated; remembered for each state."""
        key = state()
        if key not in self.resumed:
            self.resumed[key] = "; ".join(self._gone_on())
        return [self.resumed[key]] if self.resumed[key] else []

    def _gone_on(self) -> Iterator[str]:
        code, said = call([*self.argv, *self.resuming])
        if code == 2 and "holds finished results" in said:
            # Without --resume that is what is said of them.
            code, said = 0, ""
        if code and (told := re.search(r"delete (\S+) and run again", said)):
            emptied(Path(told[1]))
            code, said = call([*self.argv, *self.resuming])
        if code or said:
            yield f"repeated: code {code}: {said}"
        after = content(OUT)
        # What a killed process leaves holds nothing.
        after.pop(".lock", None)
        for difference in differences(after, self.whole):
            yield f"repeated: {difference}"


_DIGESTS = re.compile(rb'"files_sha256": \{[^}]*\}')


def verdict(good: str, faults_found: list[str], code: int, said: str) -> tuple[str, str]:
    """The verdict, and what it is made by."""
    how = f"code {code}: {said.strip()[-600:]}"
    return (good, how) if not faults_found else ("wrong", f"{'; '.join(faults_found)}; {how}")


def differences(after: dict[str, bytes], whole: dict[str, bytes]) -> list[str]:
    """Sentences on files that are not those of the undisturbed run."""
    found = {name: "other bytes" if name in whole else "left over" for name in after}
    return [
        f"{name}: {found.get(name, 'not there')}"
        for name in sorted({*after, *whole})
        if after.get(name) != whole.get(name)
    ]


def state() -> str:
    """Digest of the folder, but for what hangs on the clock."""
    if not OUT.exists():
        return "none"
    digest = hashlib.sha256()
    files = content(OUT)
    for path in sorted(OUT.rglob("*")):
        name = str(path.relative_to(OUT))
        data = files.get(name, b"")
        if "manifest.json" in name:
            data = _MANIFEST_CLOCK.sub(b"", data)
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()


def at_calls(command: Command) -> Iterator[tuple[str, int, Callable[[], tuple[str, str]]]]:
    """Faults at calls: what is tried, the number of the call, and what tries it."""
    for fault, (what, code) in CALLS.items():
        for number in command.points():
            if what != FULL_FROM or command.calls[number][0] in TAKES_SPACE:
                yield fault, number, partial(_at_call, command, what, number, code)
    for number in command.states:
        yield "killed", number, partial(_killed, command, number)
    for number in command.points():
        # Later the results are there, and lost with it.
        if number <= max(i for i, call in enumerate(command.calls) if call[0] == "rename"):
            yield "folder removed", number, partial(_removed, command, number)
        yield "in use", number, partial(_in_use, command, number)
    for number in command.points()[::4]:
        yield "clock a day ahead", number, partial(_clock, command, number, DAY)
        yield "clock a day back", number, partial(_clock, command, number, -DAY)


def _at_call(command, what, number, code):
    emptied(OUT)
    with faults(OUT, what, number, code):
        answer = call(command.argv)
    name, path = command.calls[number]
    return command.judged(*answer, kept=path if name == "unlink" else None)


def _killed(command, number):
    command.set_state(number)
    after = {name: data for name, data in content(OUT).items() if name in command.whole}
    found = differences(after, {name: command.whole[name] for name in after})
    return verdict("stopped", found + command.gone_on(), -signal.SIGKILL, "")


def _removed(command, number):
    def remove(now, *_):
        if now == number:
            shutil.rmtree(OUT, ignore_errors=True)

    emptied(OUT)
    with faults(OUT, watch=remove):
        answer = call(command.argv)
    return command.judged(*answer)


def _in_use(command, number):
    command.set_state(number)
    if not OUT.exists():
        OUT.mkdir()
    before = content(OUT)
    with locked(OUT):
        code, said = call([*command.argv, *command.resuming])
        between = content(OUT)
    before[".lock"] = between[".lock"] = b""
    if code == 0:
        return verdict("went on", differences(between, before), code, said)
    found = differences(between, before)
    if "another run is using this folder" not in said and "say --force" not in said:
        found.append("not refused as in use")
    return verdict("stopped", found + command.gone_on(), code, said)


def _clock(command, number, by):
    ahead = 0.0

    def jump(now, *_):
        nonlocal ahead
        ahead = by if now >= number else 0.0

    def moved(clock):
        return lambda: clock() + ahead

    emptied(OUT)
    with (
        mock.patch.object(time, "time", moved(time.time)),
        mock.patch.object(time, "monotonic", moved(time.monotonic)),
        mock.patch.object(time, "perf_counter", moved(time.perf_counter)),
        faults(OUT, watch=jump),
    ):
        answer = call(command.argv)
    return command.judged(*answer)


def checkpoints(command: Command) -> Iterator[tuple[str, int, Callable[[], tuple[str, str]]]]:
    """Damaged checkpoints of a run that was killed before its results were written."""
    numbers = [i for i, call in enumerate(command.calls) if call[0] == "fsync"
               and call[1].startswith("checkpoint")]  # fmt: skip
    if not numbers:
        return
    # The state before the last one goes after the folder is synced.
    number = numbers[-1] + 2
    command.set_state(number)
    files = [path for path in sorted((OUT / "checkpoint").rglob("*")) if path.is_file()]
    sizes = [path.stat().st_size for path in files]
    chosen = random.Random(0)
    tried = itertools.count()
    for path, size in zip(files, sizes, strict=True):
        name = path.relative_to(OUT)
        for length in sorted({0, 1, size // 2, size - 1}):
            damage = partial(_shorten, length=length)
            attempt = partial(_damaged, command, number, name, damage)
            yield "checkpoint cut off", next(tried), attempt
        for bit in sorted(chosen.sample(range(8 * size), 12)):
            damage = partial(_flip, bit=bit)
            attempt = partial(_damaged, command, number, name, damage)
            yield "checkpoint's bit flipped", next(tried), attempt


def _shorten(path, length):
    path.write_bytes(path.read_bytes()[:length])


def _flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _damaged(command, number, name, damage):
    command.set_state(number)
    damage(OUT / name)
    code, said = call([*command.argv, *command.resuming])
    kind, how = command.judged(code, said)
    return (kind, how) if str(name) in how else ("wrong", f"the file is not named; {how}")


def in_processes(command: Command) -> Iterator[tuple[str, int, Callable[[], tuple[str, str]]]]:
    """Faults that only a process of its own can have: at moments of a run, and of its pipes."""
    for fault, number in (
        ("process: SIGKILL", signal.SIGKILL), ("process: SIGHUP", signal.SIGHUP),
        ("process: SIGTERM", signal.SIGTERM),
    ):  # fmt: skip
        for moment in range(3):
            yield fault, moment, partial(_signalled, command, number, moment)
    for fault, redirected in (
        ("process: stdout closed pipe", "| head -0"),
        ("process: stderr closed pipe", "2>&1 >/dev/null | head -0"),
        ("process: >&- 2>&-", ">&- 2>&-"),
        ("process: >/dev/full", ">/dev/full"),
    ):
        yield fault, 0, partial(_redirected, command, redirected)
    yield "process: two at once", 0, partial(_two_at_once, command)


def _begin(command, *more, **options):
    """Begin the command in a process of its own, the last chunks of its chains with it."""
    program = "import sys, injected; injected.in_short_chunks(); "
    program += "from bnp_models.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, *command.argv, *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": f"{HERE.parents[2]}:{HERE}"}, **options,
    )  # fmt: skip


def _wait_for(process, moment):
    """Wait until the lock, the first checkpoint or the first result is there."""
    signs = [".lock", "checkpoint/manifest.json", "run.json"]
    sign = OUT / signs[moment]
    end = time.monotonic() + LONGEST
    while not sign.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)


def _signalled(command, number, moment):
    emptied(OUT)
    process = _begin(command)
    _wait_for(process, moment)
    process.send_signal(number)
    _, said = process.communicate(timeout=LONGEST)
    if process.returncode == 0:
        return command.judged(0, said)
    after = {name: data for name, data in content(OUT).items() if name in command.whole}
    found = differences(after, {name: command.whole[name] for name in after})
    if "Traceback" in said:
        found.append("a traceback")
    return verdict("stopped", found + command.gone_on(), process.returncode, said)


def _redirected(command, redirected):
    emptied(OUT)
    program = f"{sys.executable} -m bnp_models {' '.join(command.argv)} {redirected}"
    program += "; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=LONGEST)
    found = ["a traceback"] if "Traceback" in done.stderr else []
    if done.returncode in (0, 141):
        found += differences(content(OUT), command.whole)
        return verdict("went on", found, done.returncode, done.stderr)
    return verdict("stopped", found + command.gone_on(), done.returncode, done.stderr)


def _two_at_once(command):
    emptied(OUT)
    first = _begin(command)
    _wait_for(first, 0)
    code, said = call([*command.argv, *command.resuming])
    _, said_by_first = first.communicate(timeout=LONGEST)
    found = differences(content(OUT), command.whole)
    if first.returncode or code != 2 or "another run is using this folder (process" not in said:
        found.append(f"the first: {first.returncode} {said_by_first}")
    return verdict("stopped", found, code, said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those with this in 'COMMAND FAULT'")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    results = read_results()
    rng = np.random.default_rng(0)
    variables = {"a": "wxyz", "b": "uv", "c": "pqr"}
    pd.DataFrame({name: rng.choice(list(of), 60) for name, of in variables.items()}).to_csv(
        SAMPLE, index=False
    )
    in_short_chunks()
    for name in COMMANDS:
        if options.only and name not in options.only and options.only.split()[0] in COMMANDS:
            continue
        emptied(ASIDE)
        command = Command(name)
        cases = itertools.chain(at_calls(command), checkpoints(command), in_processes(command))
        for fault, point, attempt in cases:
            case = f"{name} {fault}"
            if options.only not in case:
                continue
            if not options.again and (name, fault, point) in results:
                continue
            if time.monotonic() > end:
                write(results)
                sys.exit("not finished; the same command goes on")
            kind, how = attempt()
            at = command.calls[point] if point < len(command.calls) else ("", "")
            results[name, fault, point] = (kind, how)
            with LOG.open("a") as log:
                log.write(json.dumps([name, fault, point, kind, how, at]) + "\n")
            if kind == "wrong":
                print(f"{case} at {point}, {' '.join(at)}: {how[:300]}", flush=True)
    write(results)


def read_results() -> dict[tuple[str, str, int], tuple[str, str]]:
    """What was tried before: the verdict and how, by command, fault and point."""
    if not LOG.exists():
        return {}
    lines = map(json.loads, LOG.read_text().splitlines())
    return {(name, fault, point): (kind, how) for name, fault, point, kind, how, _ in lines}


def write(results: dict[tuple[str, str, int], tuple[str, str]]) -> None:
    """Write results.md."""
    counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for (name, fault, _), (kind, _) in results.items():
        counts[fault, name][kind] += 1
    lines = [
        "# Faults during runs",
        "",
        f"bnp-models {bnp.__version__}. Each cell has the number of places that were tried, "
        "and the numbers of runs that ended with the bytes of an undisturbed run / stopped with a "
        "clear message and gave these bytes when the command was repeated / were wrong.",
        "",
        f"| fault | {' | '.join(COMMANDS)} |",
        f"|---|{'---:|' * len(COMMANDS)}",
    ]
    for fault in dict.fromkeys(fault for fault, _ in counts):
        cells = []
        for name in COMMANDS:
            of = counts.get((fault, name), Counter())
            numbers = " / ".join(str(of[kind]) for kind in ("went on", "stopped", "wrong"))
            cells.append(f"{of.total()}: {numbers}" if of else "")
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    total = sum(counts.values(), Counter())
    lines += ["", f"In all {total.total():,}: {total['went on']:,} went on, {total['stopped']:,} "
              f"stopped, {total['wrong']:,} were wrong."]  # fmt: skip
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if "LD_PRELOAD" in os.environ:
        main()
    else:
        WORK.mkdir(parents=True, exist_ok=True)
        environ = environment(build(WORK), WORK / "xla")
        os.execve(sys.executable, [sys.executable, *sys.argv], environ)
