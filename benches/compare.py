#!/usr/bin/env python3
"""Compares the figures of `cargo bench --bench loopback` with those of an earlier run.

    compare.py NEW.json [OLD.json] [--percent 15] [--agree]

Without OLD.json: with the file of benches/results that has the latest date. It prints what moved, and ends with 1 when a
figure is worse by more than so many percent (with --agree: differs by more, as two runs one after the other must not), or
is gone. Differences within the slack of a figure do not count, nor do those that need the same machine (rates, times)
when the machines differ: then only ratios are compared.
"""

import argparse
import json
import pathlib
import sys

RATIOS = {"x", "%"}


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def last_kept(new):
    """The result that was kept last, by its date and then by its name."""
    folder = pathlib.Path(__file__).resolve().parent / "results"
    kept = [path for path in folder.glob("*.json") if path.resolve() != pathlib.Path(new).resolve()]
    if not kept:
        sys.exit(f"there is no result in {folder}")
    return max(kept, key=lambda path: (load(path)["date"], path.name))


def worse_by(old, new, better):
    """By how many percent of the old figure the new one is worse; negative: better."""
    if old == new:
        return 0.0
    if old <= 0:
        return float("inf") if (new > old) == (better == "less") else float("-inf")
    change = (new - old) / old * 100
    return change if better == "less" else -change


def judge(old, new, percent, agree, same_machine):
    """(name, text, fails) of each figure that is in the old run."""
    figures = {figure["name"]: figure for figure in new["figures"]}
    for before in old["figures"]:
        name, unit = before["name"], before["unit"]
        after = figures.get(name)
        if after is None or after["value"] is None:
            yield name, "is gone", True
            continue
        was, now = before["value"], after["value"]
        if was is None:
            continue
        worse = worse_by(was, now, after["better"])
        text = f"{was:g} -> {now:g} {unit}, {abs(worse):.1f} % {'worse' if worse > 0 else 'better'}"
        if abs(now - was) <= max(before["slack"], after["slack"]):
            worse = 0.0
        fails = worse > percent or (agree and -worse > percent)
        if fails and not same_machine and unit not in RATIOS:
            text, fails = text + " (other machine: not judged)", False
        yield name, text, fails


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("new")
    parser.add_argument("old", nargs="?")
    parser.add_argument("--percent", type=float, default=15.0)
    parser.add_argument("--agree", action="store_true", help="a figure that is better fails too")
    arguments = parser.parse_args()
    old_path = arguments.old or last_kept(arguments.new)
    old, new = load(old_path), load(arguments.new)
    print(f"{pathlib.Path(arguments.new).name} ({new['commit']}) against {pathlib.Path(old_path).name} ({old['commit']})")
    for field in ("percent", "profile"):
        if old[field] != new[field]:
            sys.exit(f"{field} differs, so that nothing can be compared: {old[field]} and {new[field]}")
    judged = list(judge(old, new, arguments.percent, arguments.agree, old["machine"] == new["machine"]))
    width = max((len(name) for name, _, _ in judged), default=0)
    for name, text, fails in judged:
        print(f"{'FAIL' if fails else 'ok  '} {name:{width}}  {text}")
    failed = sum(fails for _, _, fails in judged)
    print(f"{len(judged) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
