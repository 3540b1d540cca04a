#!/usr/bin/env python3
"""Checks that the kernels' machine has the same functions in PTX and in the emulator.

Compares the declarations of namespace kvilt::simt in src/kernels/simt_ptx.cuh and
src/emulator/simt_host.h: names, types, parameters, templates.

Usage: check_machine.py [ROOT]. Prints each difference; exits 1 if there is any.
"""

import re
import sys
from pathlib import Path

PTX = "src/kernels/simt_ptx.cuh"
HOST = "src/emulator/simt_host.h"
# At the start of a line, up to its body or semicolon: u32 Shuffle(u32 v, i32 lane)
DECLARATION = re.compile(
    r"^(?P<template>template <[^>]*>\s*)?(?:inline )?(?P<head>(?:constexpr )?\w+\*? \w+\([^{};]*\))\s*[{;]"
    r"|^inline constexpr (?P<constant>\w+ k\w+ = \w+);", re.MULTILINE)


def declarations(text):
    """The declarations of namespace kvilt::simt, spaces evened."""
    body = text.partition("namespace kvilt::simt {")[2].partition("}  // namespace kvilt::simt")[0]
    found = set()
    for match in DECLARATION.finditer(body):
        declaration = match["constant"] or (match["template"] or "") + match["head"]
        found.add(" ".join(declaration.split()))
    return found


def compare(ptx, host):
    """Sentences on the declarations that only one of two texts has."""
    ptx, host = declarations(ptx), declarations(host)
    if len(ptx) < 20:
        return [f"only {len(ptx)} declarations were found in {PTX}"]
    return [f"only {PTX} has: {d}" for d in sorted(ptx - host)] + [f"only {HOST} has: {d}" for d in sorted(host - ptx)]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    ptx, host = ((root / path).read_text(encoding="utf-8") for path in (PTX, HOST))
    differences = compare(ptx, host)
    for difference in differences:
        print(difference)
    # A negative control: a machine that lacks one function is found.
    if not differences and not compare(ptx, host.replace("void WarpSync();", "")):
        differences.append("a missing WarpSync was not found")
        print(differences[0])
    print(f"check_machine: {len(declarations(ptx))} declarations, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
