"""The command line: a table of commands whose modules are imported only when one of them runs, and one home of exit codes.

Exit codes: 0 ok, 1 bug, 2 input, 3 infeasible, 4 solver; 130 after an interrupt. stdout carries the result, stderr the log.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# command: (module of pddplan.cli, panel of the help page, first line of its help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("scenario", "Scenario", "Write a commented starter scenario."),
    "validate": ("scenario", "Scenario", "Check a scenario file and say every problem at its line."),
    "schema": ("scenario", "Scenario", "Print the JSON Schema of scenario files, for editors."),
    "optimize": ("plan", "Plan", "Find the best plan: instances, chips, circuits, settings."),
    "evaluate": ("plan", "Plan", "Say what a fixed plan costs and serves, several variants side by side."),
    "pareto": ("studies", "Plan", "Trade two metrics against each other: the plans that no other beats on both."),
    "sensitivity": ("studies", "Plan", "Show which input moves the best plan most: prices, demand, hit rate, output length, bandwidth."),
    "robust": ("studies", "Plan", "Find the cheapest plan that holds in several futures, and what that certainty costs."),
    "sweep": ("sweep", "Plan", "Plan over a grid or a sample of scenario values."),
    "simulate": ("simulate", "Judge", "Replay a plan request by request beside its prediction."),
    "estimate": ("estimate", "Judge", "Predict TTFT, TPOT and throughput of one server."),
    "backtest": ("estimate", "Judge", "Compare predictions with measured servers."),
    "calibrate": ("estimate", "Judge", "Fit an engine's constants to your own benchmarks."),
    "bandwidth": (
        "studies",
        "Study",
        "Say which circuits the line needs, over cluster size and hit rate.",
    ),
    "bathtub": ("economics", "Study", "Show how benefit depends on the cache hit rate, and where it falls."),
    "stability": ("studies", "Study", "Show relay load and MD's hit rate turn by turn: what stays bounded and what runs away."),
    "savings": ("economics", "Study", "Show each saving factor on the way to the plan, and their product."),
    "report": ("report", "Show", "Write the HTML report of one plan, or of two compared."),
    "export": ("report", "Show", "Write a plan as a spreadsheet with live formulas."),
    "explain": ("explain", "Show", "Explain a metric: its formula with this scenario's numbers."),
    "launch": ("explain", "Show", "Print engine flags for each pool of a plan."),
    "models": ("models", "Data", "List, show and fit models."),
    "profiles": ("profiles", "Data", "List, show and add chips, links, engines and prices."),
    "trace": ("trace", "Data", "Measure a trace: rates, lengths, prefix hits, cache curve."),
}

INTERRUPTED = 130

# vectors here are short: threads of the linear algebra library cost more than they give
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


class _Lazy(TyperCommand):
    """Stands for a command in the help page; turns into the real one when its arguments are parsed."""

    def real(self) -> Any:
        module, _, _ = COMMANDS[str(self.name)]
        group = typer.main.get_group(import_module(f"pddplan.cli.{module}").app)
        command: Any = group.commands.get(str(self.name), group)
        command.name = self.name
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.real().make_context(info_name, args, parent=parent, **extra)


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # what a misspelt one is compared with
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        _, panel, line = COMMANDS[cmd_name]
        return _Lazy(cmd_name, help=line, rich_help_panel=panel)


app = typer.Typer(
    cls=_Commands, invoke_without_command=True, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pddplan {version('pddplan')}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log to stderr; show the traceback of a bug."),
) -> None:
    """Plan capacity and cost of serving language models over chips, rooms and lines.

    Example: pddplan optimize pdd-reference
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")


def main() -> None:
    """Entry point: run the command line and exit with the code of what happened."""
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _give_up_stdout()
    except OSError as error:
        code = _say(f"stdout: {error.strerror or error}", 2)
        _give_up_stdout()
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run the command line on ``args``; every failure ends as one line per problem on stderr and an exit code."""
    import warnings

    from pddplan.errors import PddplanError

    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a library's remarks to programmers; what users must know stands in the result
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    usage_errors: tuple[Any, ...] = tuple(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
    try:
        result = app(args, prog_name="pddplan", standalone_mode=False)
        if result == INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except PddplanError as error:
        return _say(str(error), error.exit_code)
    except usage_errors as error:
        context = getattr(error, "ctx", None)
        hint = f" (see '{context.command_path} --help')" if context is not None else ""
        return _say(f"{error.format_message()}{hint}", 2)
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(ended := error.__cause__, EOFError):  # a file that ends too soon, which the command parser takes for an interrupt
            return _bug(ended, "-v" in args or "--verbose" in args)
        return _say("interrupted; files already finished are kept, none is half written", INTERRUPTED)
    except BrokenPipeError:
        return _give_up_stdout()
    except SystemExit as error:  # the command parser's answer to a broken pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _give_up_stdout()
    except OSError as error:
        return _say(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", 2)
    except MemoryError:
        return _say("out of memory: fewer rows (workload.rows) or a smaller search need less", 1)
    except Exception as error:
        return _bug(error, "-v" in args or "--verbose" in args)


def _say(text: str, code: int) -> int:
    """Problems on stderr, one per line, control characters made harmless."""
    for line in text.splitlines():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
        print(shown if line.startswith(" ") else f"error: {shown}", file=sys.stderr)
    return code


def _bug(error: Exception, verbose: bool) -> int:
    if verbose:
        import traceback

        traceback.print_exception(error)
    where = ""
    trace = error.__traceback__
    while trace is not None:
        where = f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if " at <frozen importlib" in where:
        return _say(f"a damaged installation: {error}; install pddplan again, or delete the __pycache__ folders of Python's packages", 1)
    return _say(f"a bug in pddplan: {type(error).__name__}: {error}{where} (run 'pddplan -v ...' for the traceback)", 1)


def _give_up_stdout() -> int:
    """The reader of stdout is gone (``| head``): what it did not want is not an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
