#!/usr/bin/env python3
"""Makes the C++ of README.md a program that a test compiles and runs.

README.md shows the part of examples/decode/decode.cc between `// [readme]` and `// [/readme]`.

Usage: extract_readme.py README EXAMPLE OUT   writes EXAMPLE with that part taken from README
       extract_readme.py README EXAMPLE       exits 1 when the two differ
"""

import re
import sys
import textwrap
from pathlib import Path

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.DOTALL | re.MULTILINE)
REGION = re.compile(r"(^ *// \[readme\]\n)(.*?)(^ *// \[/readme\]$)", re.DOTALL | re.MULTILINE)


def main():
    readme = Path(sys.argv[1]).read_text(encoding="utf-8")
    example = Path(sys.argv[2]).read_text(encoding="utf-8")
    blocks = BLOCK.findall(readme)
    region = REGION.search(example)
    if len(blocks) != 1 or region is None:
        print(f"expected one cpp block in the README (found {len(blocks)}) and one [readme] region in the example")
        return 1
    if len(sys.argv) > 3:
        body = textwrap.indent(blocks[0], "  ")
        spliced = example[:region.start(2)] + body + example[region.end(2):]
        Path(sys.argv[3]).write_text(spliced, encoding="utf-8")
        return 0
    if textwrap.dedent(region[2]) != blocks[0]:
        print(f"the cpp block of {sys.argv[1]} is not the [readme] part of {sys.argv[2]}; copy it over")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
