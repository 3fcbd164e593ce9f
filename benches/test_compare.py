"""Tests of compare.py: `python3 -m unittest discover -s benches`."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import compare

HERE = pathlib.Path(__file__).resolve().parent


def run_of(**values):
    """A run with figures by name: (value, unit, better, slack)."""
    figures = [
        {"name": name, "value": value, "unit": unit, "better": better, "slack": slack}
        for name, (value, unit, better, slack) in values.items()
    ]
    return {
        "date": "2026-01-01", "commit": "abc", "machine": {"cpu": "a", "cores": 2}, "profile": "release",
        "percent": 100, "figures": figures,
    }


class Judging(unittest.TestCase):
    def fails(self, old, new, agree=False, same_machine=True):
        return [name for name, _, fails in compare.judge(old, new, 15.0, agree, same_machine) if fails]

    def test_worse_beyond_the_percent_fails_in_the_direction_of_the_figure(self):
        old = run_of(rate=(100.0, "MB/s", "more", 0), time=(100.0, "ms", "less", 0))
        for rate, time, failed in [
            (86, 114, []), (84, 100, ["rate"]), (100, 116, ["time"]), (200, 10, []), (50, 200, ["rate", "time"]),
        ]:
            new = run_of(rate=(rate, "MB/s", "more", 0), time=(time, "ms", "less", 0))
            self.assertEqual(self.fails(old, new), failed, (rate, time))

    def test_agreement_counts_both_ways(self):
        old, new = (run_of(rate=(value, "MB/s", "more", 0)) for value in (100.0, 120.0))
        self.assertEqual(self.fails(old, new), [])
        self.assertEqual(self.fails(old, new, agree=True), ["rate"])

    def test_differences_within_the_slack_say_nothing(self):
        old = run_of(later=(0.2, "ms", "less", 2.0))
        self.assertEqual(self.fails(old, run_of(later=(1.9, "ms", "less", 2.0))), [])
        self.assertEqual(self.fails(old, run_of(later=(2.5, "ms", "less", 2.0))), ["later"])

    def test_from_below_zero_up_is_worse_where_less_is_better(self):
        old = run_of(later=(-1.0, "ms", "less", 0))
        self.assertEqual(self.fails(old, run_of(later=(0.5, "ms", "less", 0))), ["later"])
        self.assertEqual(self.fails(old, run_of(later=(-2.0, "ms", "less", 0))), [])

    def test_a_figure_that_is_gone_fails(self):
        old = run_of(rate=(100.0, "MB/s", "more", 0), ratio=(1.0, "x", "more", 0))
        self.assertEqual(self.fails(old, run_of(ratio=(1.0, "x", "more", 0))), ["rate"])

    def test_other_machines_are_compared_by_ratios_alone(self):
        old = run_of(rate=(100.0, "MB/s", "more", 0), ratio=(1.0, "x", "more", 0))
        new = run_of(rate=(10.0, "MB/s", "more", 0), ratio=(0.8, "x", "more", 0))
        self.assertEqual(self.fails(old, new, same_machine=False), ["ratio"])


class Program(unittest.TestCase):
    def run_on(self, old, new):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("new.json", "old.json")]
            for path, run in zip(paths, (new, old)):
                path.write_text(json.dumps(run), encoding="utf-8")
            return subprocess.run([sys.executable, HERE / "compare.py", *paths], capture_output=True, text=True)

    def test_exit_code_says_whether_something_is_worse(self):
        old, new = (run_of(rate=(value, "MB/s", "more", 0)) for value in (100.0, 50.0))
        self.assertEqual(self.run_on(old, old).returncode, 0)
        worse = self.run_on(old, new)
        self.assertEqual(worse.returncode, 1)
        self.assertIn("50.0 % worse", worse.stdout)

    def test_runs_of_other_amounts_are_not_compared(self):
        old = run_of(rate=(100.0, "MB/s", "more", 0))
        new = copy.deepcopy(old)
        new["percent"] = 1
        answer = self.run_on(old, new)
        self.assertEqual(answer.returncode, 1)
        self.assertIn("percent differs", answer.stderr)

    def test_kept_results_have_what_is_compared_and_no_paths(self):
        kept = sorted((HERE / "results").glob("*.json"))
        if not kept:
            self.skipTest("no result is kept yet")
        for path in kept:
            text = path.read_text(encoding="utf-8")
            self.assertNotIn('"/', text, path.name)
            run = json.loads(text)
            self.assertEqual(list(compare.judge(run, run, 0.0, True, True))[0][2], False)
            self.assertFalse([name for name, _, fails in compare.judge(run, run, 0.0, True, True) if fails])


if __name__ == "__main__":
    unittest.main()
