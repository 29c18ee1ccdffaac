"""List the presets for --arch, or show the recipe of one.

`fairseq-train --user-dir ... --arch NAME -h` shows every flag of a preset, with its default.
"""

import argparse
from typing import Any

from fairseq_tiedemb.cli._options import add_number, at_least, refuse_options
from fairseq_tiedemb.option_checks import flag_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the preset; default: all presets and what they share")
    about = "size of each dictionary, including fairseq's 4 symbols"
    add_number(parser, "--words", f"{about} (default: 10000)", kind=at_least(5, use=10_000))


def run(arguments: argparse.Namespace) -> None:
    """Prints the list of presets, or one preset."""
    from fairseq_tiedemb.analysis import presets

    if arguments.name is not None:
        print("\n".join(lines(presets.describe(arguments.name, words=arguments.words))))
        return
    refuse_options(arguments, ["words"], needs="NAME, of whose dictionaries it is the size")
    for about, names in presets.families().items():
        print(about)
        for name in names:
            print(f"  {name:<40} shares {presets.describe(name).shares}")


def lines(preset: Any) -> list[str]:
    """Formats a preset as lines of text."""
    share = 100 * preset.in_tables / preset.parameters
    text = [
        f"{preset.name}: {preset.about}",
        f"shares      {preset.shares}",
        f"size        {preset.parameters:,} parameters with {preset.words:,} words; {share:.1f} % of them in tables",
        "options",
        *(f"    {flag}" for flag in flags(preset.options)),
    ]
    if not preset.recipe:
        return [*text, "recipe      none: --optimizer, --lr, --criterion and the like are yours"]
    unless = ", unless --optimizer is given" if preset.recipe_yields else ""
    how = f"recipe      set by --arch {preset.name} in fairseq-train{unless}"
    return [*text, how, *(f"    {flag}" for flag in flags(preset.recipe))]


def flags(values: dict[str, Any]) -> list[str]:
    """Returns options in command-line form; options that are off are left out."""
    shown = []
    for name, value in values.items():
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if value is not False:
            shown.append(flag_of(name) + ("" if value is True else f" {text}"))
    return shown
