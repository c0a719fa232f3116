"""What tests of the command line share: a command in this process, its refusals, and files."""

from __future__ import annotations

from typer.testing import CliRunner

from ksparse.cli import app


def run(*arguments, code=0, input=None):
    """The command in this process; what it printed."""
    done = CliRunner().invoke(app, list(map(str, arguments)), input=input)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.stderr + done.stdout
    return done


def refused(*arguments, input=None):
    """The one line of an error with exit code 2, and nothing on stdout."""
    done = run(*arguments, code=2, input=input)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def listing(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_csv(path, names, rows):
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path
