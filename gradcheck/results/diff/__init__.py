"""What changed between two runs, result by result: pure functions from two `Run`s to a `Diff`."""
