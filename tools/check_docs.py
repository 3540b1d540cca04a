#!/usr/bin/env python3
"""Checks what the documents point to, and what the sources say of the documents.

* Relative links of every .md file lead to a file.
* Every docs/NAME.md that a source names exists.
* Every test named after a case (P51_extreme_logits) has a row in docs/cases.md, and every row a test.

Usage: check_docs.py [ROOT]. Exits 1 if anything is amiss.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
DOCUMENT = re.compile(r"\bdocs/\w+\.md\b")
CASE_TEST = re.compile(r"\b(P\d+)_\w+")
CASE_ROW = re.compile(r"^\| (P\d+) \|", re.MULTILINE)
SOURCES = ("include", "src", "cli", "test", "bench", "examples", "tools")


def sources(root):
    for top in SOURCES:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in {".h", ".cc", ".c", ".py", ".sh", ".txt", ".cmake"} and path.is_file():
                yield path, path.read_text(encoding="utf-8")


def documents(root):
    for folder in (root, root / "docs", root / "data", root / "bench", root / "examples"):
        yield from sorted(folder.glob("*.md"))


def check(root):
    complaints = []
    for document in documents(root):
        for link in LINK.findall(document.read_text(encoding="utf-8")):
            if not (document.parent / link).exists():
                complaints.append(f"{document.relative_to(root)}: the link {link} leads nowhere")
    tested = set()
    for path, text in sources(root):
        name = path.relative_to(root)
        for mention in sorted(set(DOCUMENT.findall(text))):
            if not (root / mention).exists() and "check_docs" not in path.name:
                complaints.append(f"{name}: {mention} does not exist")
        if path.name.endswith("_test.cc"):
            tested |= set(CASE_TEST.findall(text))
    cases = root / "docs/cases.md"
    rows = set(CASE_ROW.findall(cases.read_text(encoding="utf-8"))) if cases.exists() else set()
    complaints += [f"docs/cases.md: no row for {case}, which a test names" for case in sorted(tested - rows)]
    complaints += [f"docs/cases.md: no test is named after {case}" for case in sorted(rows - tested)]
    return complaints


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    complaints = check(root)
    print("\n".join([*complaints, f"check_docs: {len(complaints)} complaints"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
