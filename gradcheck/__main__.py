"""The program: `gradcheck`, and `python -m gradcheck`.

Ctrl-C ends it quietly from here on, before anything else is imported; and before that the working
directory, which `python -m` puts first on the path, goes: a `signal.py` in it is not Python's.
"""

import gc
import os
import sys


def main() -> int:
    """Run the command that `sys.argv` names; returns the exit code."""
    try:
        from gradcheck.cli.main import main as command  # door: Ctrl-C within it is quiet

        return command()
    except KeyboardInterrupt:  # within an import, or a second time
        return 130
    finally:
        gc.freeze()  # the interpreter collects once more when it ends: nothing is left to look at


def _leave_out_the_working_directory() -> None:
    try:
        here = os.getcwd()  # noqa: PTH109  pathlib would be imported from there
    except OSError:  # it was removed, and Python has left it out
        return
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]
        if __file__.startswith(os.path.join(here, "")):  # noqa: PTH118  where we are found
            sys.path.append(here)


if __name__ == "__main__":
    _leave_out_the_working_directory()
    sys.exit(main())
