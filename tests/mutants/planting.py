"""Planted faults: each is applied to a copy of the tree, where the test that the list names must fail."""

import importlib.util
import queue
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from running import run_tests

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "mutants"  # output of the tests of each fault
FOLDERS = ("envs", "jaxrl", "tests", "bench", "docs", "notebooks", "requirements")
COPIED = (*FOLDERS, "Makefile", "pyproject.toml", "mkdocs.yml", "README.md")
LONGEST = 600  # seconds of one run of tests, after which it has failed in another way than the fault should

CAUGHT, PASSED = "caught", "passed"


class Fault(NamedTuple):
    """One change of one file that a test must notice.

    Attributes:
      name: Name, unique.
      file: Path of the file, from the root.
      old: Text to replace, which occurs exactly once in the file.
      new: Replacement.
      test: Node id of the test that must fail, which is not marked slow; without the row, any row of it.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


class Outcome(NamedTuple):
    """The end of one run of tests.

    Attributes:
      verdict: `CAUGHT`, `PASSED`, or a sentence on what is wrong.
      seconds: Duration.
    """

    verdict: str
    seconds: float


def objection(fault: Fault, root: Path = ROOT) -> str | None:
    """What is wrong with the text of a fault, or None."""
    path = root / fault.file
    if not path.is_file():
        return f"{fault.name} changes {fault.file}, which does not exist."
    count = path.read_text().count(fault.old)
    if count != 1:
        return f"the old text of {fault.name} must occur exactly once in {fault.file}, but occurs {count} times."
    return f"the new text of {fault.name} equals the old one." if fault.old == fault.new else None


class Copy:
    """A copy of the tree in which one fault at a time is planted.

    Args:
      folder: Folder to be created.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        for name in COPIED:
            if (source := ROOT / name).is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("node_modules"))
            elif source.exists():
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, folder / name)

    def run(self, tests: Sequence[str], name: str) -> tuple[dict[str, str] | str, float]:
        """How tests end, see `run_tests`, and the seconds that they take; `name` is that of the log."""
        LOGS.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        ended = run_tests(self.folder, list(tests), LOGS / f"{name}.log", LONGEST)
        return ended, time.monotonic() - start

    def plant(self, fault: Fault) -> Outcome:
        """Apply a fault, run its test, and restore the file."""
        path = self.folder / fault.file
        sound = path.read_text()
        try:
            self._write(path, sound.replace(fault.old, fault.new))
            ended, seconds = self.run([fault.test], fault.name)
        finally:
            self._write(path, sound)
        if isinstance(ended, str):
            return Outcome(f"with the fault {fault.name}, {fault.test} {ended}.", seconds)
        rows = rows_of(fault.test, ended)
        if "failed" in rows:
            return Outcome(CAUGHT, seconds)
        why = "passes" if "passed" in rows else f"ends with {', '.join(rows) or 'no result'}"
        return Outcome(f"{fault.name} survives: {fault.test} {why} with the fault.", seconds)

    def sound(self, tests: Sequence[str], name: str) -> dict[str, Outcome]:
        """Run tests without a fault: the outcome of each, of which all rows must pass."""
        ended, seconds = self.run(tests, name)
        if not ended and len(tests) > 1:  # pytest runs none where one does not exist
            half = len(tests) // 2
            return self.sound(tests[:half], name) | self.sound(tests[half:], name)
        if isinstance(ended, str):
            return {test: Outcome(f"without a fault, {test} {ended}.", seconds) for test in tests}
        verdicts = {}
        for test in tests:
            rows = rows_of(test, ended)
            wrong = "does not exist or is marked slow" if not rows else f"ends with {rows[0]} without a fault"
            verdict = PASSED if rows and set(rows) == {"passed"} else f"{test} {wrong}."
            verdicts[test] = Outcome(verdict, seconds / len(tests))
        return verdicts

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        # Compiled files are compared by size and second, which a change and its undoing may share.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def rows_of(test: str, ended: dict[str, str]) -> list[str]:
    """How the rows of a test ended, the worst first."""
    rows = [outcome for name, outcome in ended.items() if name == test or name.startswith(f"{test}[")]
    return sorted(rows, key=lambda outcome: outcome == "passed")


def plant_all(
    faults: Sequence[Fault], folder: Path, workers: int, say: Callable[[str], None]
) -> tuple[dict[str, Outcome], list[str]]:
    """Plant faults one by one, in several copies at once.

    Args:
      faults: Faults.
      folder: Folder for the copies, empty.
      workers: Number of copies.
      say: Function that prints a line of progress.

    Returns:
      The outcome of each planted fault, and sentences on what is wrong.
    """
    wrong = [sentence for fault in faults if (sentence := objection(fault))]
    if wrong:
        return {}, wrong
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(min(workers, len(faults))):
        copies.put(Copy(folder / f"copy{number}"))

    def in_a_copy(work: Callable[[Copy], object]) -> object:
        copy = copies.get()
        try:
            return work(copy)
        finally:
            copies.put(copy)

    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(copies.qsize()) as pool:
        say(f"Running the {len({fault.test for fault in faults})} tests without a fault ...")
        shares = [
            pool.submit(in_a_copy, lambda copy, share=share, n=n: copy.sound(share, f"sound{n}"))
            for n, share in enumerate(divided({fault.test for fault in faults}, copies.qsize()))
        ]
        sound: dict[str, Outcome] = {}
        for share in shares:
            sound |= share.result()  # pyright: ignore[reportOperatorIssue]
        wrong = [outcome.verdict for outcome in sound.values() if outcome.verdict != PASSED]
        planted = [fault for fault in faults if sound[fault.test].verdict == PASSED]
        running = {pool.submit(in_a_copy, lambda copy, fault=fault: copy.plant(fault)): fault for fault in planted}
        for number, done in enumerate(as_completed(running), 1):
            fault, outcome = running[done], done.result()
            assert isinstance(outcome, Outcome)
            outcomes[fault.name] = outcome
            verdict = outcome.verdict if outcome.verdict == CAUGHT else "NOT CAUGHT"
            say(f"{number:4d}/{len(planted)}  {outcome.seconds:5.0f} s  {verdict}  {fault.name}")
    return outcomes, wrong + [outcome.verdict for outcome in outcomes.values() if outcome.verdict != CAUGHT]


def divided(tests: Iterable[str], count: int) -> list[list[str]]:
    """Tests in at most `count` shares, those of one file together."""
    by_file: dict[str, list[str]] = {}
    for test in sorted(tests):
        by_file.setdefault(test.split("::")[0], []).append(test)
    shares: list[list[str]] = [[] for _ in range(count)]
    for group in sorted(by_file.values(), key=len, reverse=True):
        min(shares, key=len).extend(group)
    return [share for share in shares if share]
