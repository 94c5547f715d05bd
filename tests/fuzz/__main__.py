"""Fuzz the readers: ``python -m tests.fuzz --inputs 200000``. The exit code is 1 if an outcome is forbidden."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: forked processes have no threads of their parent

from tests.fuzz.targets import all_targets
from tests.fuzz.workers import Case, Failure, Target, files_of, run_cases

OUTCOMES = ("accepted", "refused", "traceback", "crash", "over limits")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the inputs and print the outcomes of every reader."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=5_000, help="number of inputs, over all readers")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other inputs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--reader", action="append", help="only this reader; may be repeated")
    parser.add_argument("--index", type=int, help="run one input of the --reader in this process, with its traceback")
    options = parser.parse_args(argv)
    targets = all_targets()
    chosen = {name: targets[name] for name in options.reader or targets}
    if options.index is not None:
        return _reproduce(next(iter(chosen.values())), options.index, options.seed)
    counts, failures = run_cases(chosen, planned(chosen, options.inputs), options.seed, options.processes)
    print(table(counts))
    kinds = {(failure.case.target, failure.detail.rstrip().rpartition("\n")[2][:40]): failure for failure in failures}
    for failure in list(kinds.values())[:20]:  # one of each kind
        print(f"\n{_described(chosen[failure.case.target], failure, options.seed)}")
    return int(bool(failures))


def planned(targets: Mapping[str, Target], inputs: int) -> list[Case]:
    """Return ``inputs`` cases, spread over the targets by their weights and mixed: each process gets all kinds."""
    total = sum(target.weight for target in targets.values())
    shares = {name: max(1, round(inputs * target.weight / total)) for name, target in targets.items()}
    cases = [(index / shares[name], name, index) for name in shares for index in range(shares[name])]
    return [Case(name, index) for _, name, index in sorted(cases)]


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return the outcomes of every reader as a Markdown table."""
    names = list(dict.fromkeys(name for name, _ in counts))
    rows = [(name, *(counts[name, outcome] for outcome in OUTCOMES)) for name in sorted(names)]
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, len(OUTCOMES) + 1))))
    lines = [f"| {name} | {sum(numbers):,} | {' | '.join(f'{n:,}' for n in numbers)} |" for name, *numbers in rows]
    head = ["| reader | inputs | " + " | ".join(OUTCOMES) + " |", "| --- |" + " ---: |" * (len(OUTCOMES) + 1)]
    return "\n".join([*head, *lines])


def _described(target: Target, failure: Failure, seed: int) -> str:
    """Write the files of a failure, and return how to reproduce it."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-failure-"))
    _write(files_of(target, failure.case.index, seed), folder)
    command = f"python -m tests.fuzz --seed {seed} --reader {target.name!r} --index {failure.case.index}"
    return f"{failure.outcome} in {target.name}, files in {folder}, reproduce with: {command}\n{failure.detail}"


def _reproduce(target: Target, index: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        files = files_of(target, index, seed)
        _write(files, Path(folder))
        print({name: (len(content), content[:200]) for name, content in files.items()})
        try:
            print("accepted:", target.read(Path(folder)))
        except Exception:
            traceback.print_exc()
    return 0


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
