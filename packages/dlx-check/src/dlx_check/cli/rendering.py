"""What commands print with: rich, an optional extra, or plain text in its place."""

from typing import TYPE_CHECKING

__all__ = ["Console", "Table", "box", "escape"]

if TYPE_CHECKING:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
else:
    try:
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        from dlx_check.cli.plain import Console, Table, box, escape
