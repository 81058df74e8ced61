"""`python -m benchmarks [--repeats N] [--items N ...] [--json]`: what runs cost.

Times are medians on this machine, in microseconds; `cpu` holds where the machine is busy. Writes
are counted, and the same on every machine. So is what runs cost on AWS, of which nothing is timed.
`--items` adds dispatched maps of other sizes: 10000 takes some ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict

from benchmarks.deployment import Bill, all_bills
from benchmarks.maps import SIZES, bills_of, tables
from benchmarks.measure import Figure, all_figures
from benchmarks.memory import Peak, all_peaks
from benchmarks.signals import SIZES as SIGNALS
from benchmarks.signals import bills_of as signal_bills_of
from benchmarks.signals import tables as signal_tables
from benchmarks.streams import all_handled
from stepwell.adapters.aws.handlers.telemetry import logger


def _table(figures: list[Figure]) -> str:
    lines = [
        f"{'workload':<14} {'store':<12} {'n':>5} {'wall µs':>9} {'cpu µs':>9}  {'per':<7} writes"
    ]
    lines += [
        f"{f.workload:<14} {f.store:<12} {f.size:>5} {f.wall:>9.1f} {f.cpu:>9.1f}  "
        f"{f.unit:<7} {f.writes or ''}"
        for f in figures
    ]
    return "\n".join(lines)


def _growth(figures: list[Figure]) -> str:
    lines = ["", "growth of the cpu cost per unit, n = 1000 over n = 100 (1.0 is flat)"]
    by_key = {(f.workload, f.store, f.size): f for f in figures}
    for (workload, store, size), figure in by_key.items():
        small = by_key.get((workload, store, 100))
        if size == 1000 and small is not None:
            lines.append(f"{workload:<14} {store:<12} {figure.cpu / small.cpu:.2f}")
    return "\n".join(lines)


def _bills(bills: list[Bill]) -> str:
    lines = [
        "",
        "on AWS, counted on emulated services",
        f"{'run':<28} {'requests':>8} {'WRU':>4} {'RRU':>4} {'messages':>8} {'invocations':>11}",
    ]
    lines += [
        f"{each.run:<28} {sum(each.requests.values()):>8} {each.written:>4} {each.read:>4} "
        f"{each.messages:>8} {each.invocations:>11}"
        for each in bills
    ]
    return "\n".join(lines)


def _peaks(peaks: list[Peak]) -> str:
    lines = [
        "",
        "peak memory of a process, in MB",
        f"{'run':<14} {'items':>6} {'of 1':>6} {'of all':>6}",
    ]
    lines += [f"{p.run:<14} {p.items:>6} {p.before:>6.0f} {p.after:>6.0f}" for p in peaks]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks")
    parser.add_argument("--repeats", type=int, default=7, help="measurements per figure")
    parser.add_argument(
        "--items", type=int, nargs="*", default=[], help="more sizes of dispatched maps"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args()
    figures = asyncio.run(all_figures(options.repeats))
    figures += asyncio.run(all_handled(options.repeats))
    logger.setLevel("ERROR")  # the functions tell of each turn
    bills, maps = all_bills(), bills_of([*SIZES, *options.items])
    signals = signal_bills_of(SIGNALS)
    peaks = all_peaks(options.items)
    if options.json:
        report = {
            "times": [*map(asdict, figures)],
            "bills": [*map(asdict, bills)],
            "maps": {name: [*map(asdict, found)] for name, found in maps.items()},
            "signals": {name: [*map(asdict, found)] for name, found in signals.items()},
            "memory": [*map(asdict, peaks)],
        }
        print(json.dumps(report, indent=1))
    else:
        print(_table(figures))
        print(_growth(figures))
        print(_bills(bills))
        print(tables(maps))
        print(signal_tables(signals))
        print(_peaks(peaks))


if __name__ == "__main__":
    main()
