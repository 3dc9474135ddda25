"""The command line reference: every verb and option of ``bench``, as Markdown made from the click commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click
import cloup

from bench_cli.bench import bench
from tools.reference.markdown import plain


def command_line_markdown() -> str:
    """One heading for each section of ``bench --help``, one below it for each verb."""
    root = click.Context(bench, info_name="bench", **bench.context_settings)
    lines: list[str] = []
    for section in bench.list_sections(root):
        lines += [f"## {section.title}", ""]
        for name in section.commands:
            command = bench.get_command(root, name)
            assert command is not None
            lines += _command(command, name, root)
    return "\n".join(lines)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """Usage, help and options of one verb, then of the verbs below it."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = command.collect_usage_pieces(context)
    yield from (f"### {context.command_path}", "", "```text", " ".join([context.command_path, *usage]), "```", "")
    yield from _paragraphs(command.help or "")
    yield from (f"```{{program}} {context.command_path}", "```", "")
    for title, options in _groups(command):
        yield from (f"**{plain(title)}**", "")
        for option in options:
            yield from _option(option, context)
    yield from _paragraphs(command.epilog or "")
    if isinstance(command, click.Group):
        for inner_name, inner in command.commands.items():
            yield from _command(inner, inner_name, context)


def _groups(command: click.Command) -> Iterator[tuple[str, list[click.Option]]]:
    """The option groups with their titles; hidden options are left out."""
    grouped: list[click.Parameter] = []
    for group in getattr(command, "option_groups", ()):
        assert isinstance(group, cloup.OptionGroup)
        grouped += group.options
        shown = [option for option in group.options if not option.hidden]
        if shown and not group.hidden:
            yield group.title, shown
    rest = [p for p in command.params if isinstance(p, click.Option) and p not in grouped and not p.hidden and p.name != "help"]
    if rest:
        yield "Other options", rest


def _option(option: click.Option, context: click.Context) -> Iterator[str]:
    """An option as Sphinx's ``option`` directive: spellings, value, help, range and default."""
    value = "" if option.is_flag else " " + option.make_metavar(context)
    spellings = ", ".join(f"{spelling}{value}" for spelling in (*option.opts, *option.secondary_opts))
    extra = option.get_help_extra(context)
    limits = [extra["range"]] if "range" in extra else []
    limits += [f"default: {_default(extra['default'])}"] if "default" in extra else []
    limits += ["required"] if "required" in extra else []
    note = f" *({'; '.join(plain(limit) for limit in limits)})*" if limits else ""
    yield from (f"````{{option}} {spellings}", f"{plain(option.help or '')}{note}", "````", "")


def _default(text: str) -> str:
    """A default; click puts one that is a description into parentheses."""
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _paragraphs(help_text: str) -> Iterator[str]:
    r"""A help text's paragraphs; one that follows ``\b`` keeps its lines, as on the terminal."""
    kept = False
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_text)):
        is_marker, text = paragraph.startswith("\b"), paragraph.removeprefix("\b").strip("\n")
        kept = kept or is_marker
        if text and kept:
            yield from ("```text", inspect.cleandoc(text), "```", "")
        elif text:
            yield from (plain(" ".join(text.split())), "")
        kept = is_marker and not text
