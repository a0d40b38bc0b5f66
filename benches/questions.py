"""Write the tables of `docs/faq.md` from the summary.

    python benches/questions.py

Each table is some rows of `docs/performance.md`, between `<!-- begin NAME -->` and
`<!-- end -->`.
"""

from picture import PICTURE
from report import BLOCK, ns, ratio
from results import Document
from summary import load

PAGE = PICTURE.with_name("faq.md")
SIDES = ("dlx", "its")

# The path of a row and what it is compared with.
ROWS = {
    "python": [
        ("dlx.from_dlpack(torch)", "torch.from_dlpack(torch)"),
        ("dlx.convert(torch, np.ndarray)", "np.from_dlpack(torch)"),
        ("dlx.convert(torch, np.ndarray)", "t.numpy()"),
        ("dlx.convert(ndarray, torch.Tensor)", "torch.from_dlpack(ndarray)"),
        ("dlx.convert(ndarray, torch.Tensor)", "torch.from_numpy(ndarray)"),
    ],
    "tvm": [
        ("dlx.from_dlpack(torch)", "tvm_ffi.from_dlpack(torch)"),
        ("dlx.from_dlpack(ndarray)", "tvm_ffi.from_dlpack(ndarray)"),
        ("tvm-ffi call, three dlx tensors", "three torch tensors"),
        ("tvm-ffi call, three ndarrays, published", "not published"),
    ],
    "time": [
        ("dlx.from_dlpack(torch)", "torch.from_dlpack(torch)"),
        ("dlx.bridge adds, two torch tensors", "t.numpy() twice, torch.from_numpy"),
        ("nanobind call, three dlx tensors", "three torch tensors"),
        ("copy=True, 64 MiB compact", "np.copy(a)"),
    ],
    "without": [
        ("dlx.from_dlpack(__dlpack__ alone)", "np.from_dlpack(the same)"),
        ("dlx.convert(__dlpack__ alone, np.ndarray)", "np.from_dlpack(the same)"),
        ("dlx.from_dlpack(ndarray)", "ndarray.__dlpack__(max_version=(1, 0))"),
    ],
}


def rows(runs: Document, wanted: list[tuple[str, str]]) -> str:
    """Format some rows of the summary, in this order."""
    found = {(row["path"], row["against"]): row for row in runs["rows"]}
    lines = ["| what | dlx, ns | compared with | its, ns | ratio |"]
    lines.append("| --- | ---: | --- | ---: | ---: |")
    for path, against in wanted:
        row = found[path, against]
        times = [ns(row[side]).replace(" ", "\N{NO-BREAK SPACE}") for side in SIDES]
        times.append(ratio(row, runs["pythons"][0]))
        lines.append(f"| {path} | {times[0]} | {against} | {times[1]} | {times[2]} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with tables of the current results."""
    runs = load()["runs"]
    return BLOCK.sub(
        lambda block: f"{block[1]}{rows(runs, ROWS[block[2]])}{block[3]}", text
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
