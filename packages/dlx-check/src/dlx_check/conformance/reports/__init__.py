"""What is made of a report: text, Markdown, a badge, a comparison, a site.

All of it is made of `dlx_check.Report` alone, so of a file as well as of a run. The
schema of such a file, one line of it, is `dlx-check-1.schema.json` beside this file.

`known` names checks whose deviation the reader has accepted; they are shown as such.
Where there are several reports, it has a set for each target's name.
"""
