"""Man pages and shell completions, made from the commands.

Owns their form (man(7)). Never: says anything about a command that the command does not say of itself.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from common.cli.main import main

COMPLETIONS = {
    "bash": "completions/bash/headrace",
    "zsh": "completions/zsh/_headrace",
    "fish": "completions/fish/headrace.fish",
}
EXIT_STATUS = "0: done. 1: refused, or not found. 2: wrong usage or configuration."


def write_all(directory: Path) -> list[Path]:
    """Write every page and completion into a directory; return the files."""
    written = []
    for words, command in walk(main, ("headrace",)):
        written.append(_write(directory / "man" / "man1" / f"{'-'.join(words)}.1", page(words, command)))
    for shell, name in COMPLETIONS.items():
        written.append(_write(directory / name, completion(shell)))
    return written


def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with the words that call it, groups before what they hold."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from walk(found, (*words, name))


def page(words: tuple[str, ...], command: click.Command) -> str:
    """Return the man page of one command."""
    context = click.Context(command, info_name=" ".join(words))
    name = "-".join(words)
    first, *rest = _paragraphs(command.help or command.short_help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.upper()}" 1 "" "Headrace" "Headrace"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(first.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(' '.join(words))}",
        _plain(usage),
        ".SH DESCRIPTION",
        *(line for paragraph in (first, *rest) for line in (_plain(paragraph), ".PP")),
    ]
    lines += _options(command, context)
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            lines += [".TP", f"\\fB{_plain(f'{name}-{sub}')}\\fP(1)", _plain(found.get_short_help_str(200))]
    lines += [".SH EXIT STATUS", EXIT_STATUS]
    if len(words) > 1:
        lines += [".SH SEE ALSO", f".BR {_plain('-'.join(words[:-1]))} (1)"]
    return "\n".join(lines) + "\n"


def completion(shell: str) -> str:
    """Return what a shell reads to complete the command's words."""
    return get_completion_class(shell)(main, {}, "headrace", "_HEADRACE_COMPLETE").source()


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    lines = [".SH OPTIONS"] if records else []
    for words, sentence in records:
        lines += [".TP", f"\\fB{_plain(words)}\\fP", _plain(sentence)]
    return lines


def _paragraphs(text: str) -> list[str]:
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text.replace("\b", "")) if each.strip()]
    return paragraphs or [""]


def _plain(text: str) -> str:
    """Return text in which roff sees nothing but text."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
