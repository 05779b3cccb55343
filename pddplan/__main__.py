"""``python -m pddplan`` and the ``pddplan`` command: the command line, where an interrupt is no traceback even while it is imported."""

import sys


def main() -> None:
    """Run the command line and exit with the code of what happened."""
    try:
        from pddplan.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("error: interrupted before anything was done", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
