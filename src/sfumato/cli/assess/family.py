"""The family of commands of `sfumato assess`."""

from typing import Any

import typer
from typer.core import TyperGroup

_UNNAMED = "images"


class _ImagesUnlessNamed(TyperGroup):
    """`sfumato assess A B` is `sfumato assess images A B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [_UNNAMED, *args])


app = typer.Typer(
    cls=_ImagesUnlessNamed,
    help="Measure how alike originals and guesses are; attack nothing.\n\n"
    "`sfumato assess A B` is `sfumato assess images A B`.",
    no_args_is_help=True,
)
