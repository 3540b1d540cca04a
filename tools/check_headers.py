#!/usr/bin/env python3
"""Compiles every header of include/kvilt and src/contract alone, with each compiler given.

Public headers compile as C++20 with warnings as errors; kvilt_c.h also as C11. Headers of
src/contract compile with no standard header in reach, as NVRTC will read them.

Usage: check_headers.py ROOT COMPILER... (a compiler that is not there is reported, not an error).
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STRICT = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
NO_STANDARD_HEADERS = ["-nostdinc", "-nostdinc++"]


def compiles(compiler, flags, source, include):
    """The compiler's complaint about a file that only includes `include`, or ''."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / source
        file.write_text(f'#include "{include}"\nint main(void) {{ return 0; }}\n', encoding="utf-8")
        run = subprocess.run([compiler, *STRICT, *flags, str(file)], capture_output=True, text=True)
        return run.stderr if run.returncode else ""


def jobs(root):
    """(name, flags, source name, include) of each check."""
    for header in sorted((root / "include/kvilt").glob("*.h")):
        flags = ["-std=c++20", f"-I{root / 'include'}"]
        yield header.name, flags, "alone.cc", f"kvilt/{header.name}"
    for header in sorted((root / "src/contract").glob("*.h")):
        flags = ["-std=c++20", f"-I{root}", *NO_STANDARD_HEADERS]
        yield f"contract/{header.name}", flags, "alone.cc", f"src/contract/{header.name}"
    if (root / "include/kvilt/kvilt_c.h").exists():
        yield "kvilt_c.h as C11", ["-std=c11", "-xc", f"-I{root / 'include'}"], "alone.c", "kvilt/kvilt_c.h"


def main():
    root = Path(sys.argv[1])
    failures = 0
    compiled = 0
    for compiler in sys.argv[2:]:
        if shutil.which(compiler) is None:
            print(f"check_headers: NOT RUN with {compiler}, which is not installed")
            continue
        for name, flags, source, include in jobs(root):
            complaint = compiles(compiler, flags, source, include)
            compiled += 1
            if complaint:
                failures += 1
                print(f"{name} does not compile alone with {compiler}:\n{complaint}")
    print(f"check_headers: {compiled} compilations, {failures} failures")
    return 1 if failures or not compiled else 0


if __name__ == "__main__":
    sys.exit(main())
