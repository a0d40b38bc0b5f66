"""The picture of `processes.py`: each ratio beside the one that is accepted."""

from picture import COLOURS, LEFT, OTHER, WIDTH, E, M, text
from picture import PICTURE as BESIDE
from results import Document

PICTURE = BESIDE.with_name("processes.svg")
FULL = 160  # pixels of a ratio of one


def svg(measured: Document) -> str:
    """Return the picture: a bar for each row, and a line where its goal is."""
    about, lines, y = measured["machine"], [], 40
    title = "time with dlx, divided by that of what it is compared with; | the goal"
    lines.append(text(WIDTH / 2, 14, title, M))
    for row in measured["rows"]:
        long = min(row["ratio"], 2.5) * FULL
        colour = COLOURS["dlx"] if row["ratio"] <= row["budget"] else OTHER
        goal = LEFT + min(row["budget"], 2.5) * FULL
        lines += [
            text(LEFT - 6, y - 5, row["path"], E + ' font-weight="bold"'),
            text(LEFT - 6, y + 9, f"/ {row['against']}", E),
            f'<rect x="{LEFT}" y="{y - 9}" width="{long:.1f}" height="18" '
            f'fill="{colour}"/>',
            f'<rect x="{goal:.1f}" y="{y - 12}" width="2" height="24" fill="black"/>',
            text(LEFT + round(long) + 5, y, f"{row['ratio']:.2f}"),
        ]
        y += 36
    caption = f"{about['cpu']}, Python {about['python']}, {about['date'][:10]}"
    lines.append(text(WIDTH / 2, y, caption, M))
    size = f'width="{WIDTH}" height="{y + 14}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            'font-family="sans-serif" font-size="12">',
            f'<rect {size} fill="white"/>',
            *lines,
            "</svg>\n",
        ]
    )
