#!/usr/bin/env python3
"""Checks the layers of the source tree against docs/design.md.

Two parts of that document are the rule itself and are read from it:

* section 4, the lines `src/plan -> include src/core ...`: who may include whom;
* the table "Files past the limit": the only files that may have more than 400 lines.

Beyond these the words that belong to one room are looked for elsewhere (getenv, __shared__, ...).
Tests (x_test.cc, x_fixture.*, and headers that only those include) may include any room: they stand
beside the code but ship nowhere.

Usage: check_layers.py [ROOT]. Prints each breach as file:line: text; exits 1 if there is any.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

LINE_LIMIT = 400
SOURCE_SUFFIXES = {".h", ".cc", ".c", ".cpp", ".cuh", ".cu", ".py", ".cmake", ".sh"}
CXX_SUFFIXES = {".h", ".cc", ".c", ".cpp", ".cuh", ".cu"}
TOP_FOLDERS = ("include", "src", "cli", "test", "bench", "examples", "tools", "cmake", "python")

# One header of a room that others may include, where the design says "(name only)".
RULE_LINE = re.compile(r"^(?P<room>[a-z_/]+)\s*->\s*(?P<allowed>[a-z_/ ]*)(\((?P<only>\w+\.h) only\))?")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')
COMMENT_OR_STRING = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)

# word, where it may stand, why
ROOM_WORDS = [
    (re.compile(r"\b(?:secure_)?getenv\b"), ("src/core/env.cc",), "only src/core/env.cc reads the environment"),
    (re.compile(r"__shared__|\bthreadIdx\b|\bblockIdx\b|__global__"), ("src/kernels/",),
     "device code belongs in src/kernels"),
    (re.compile(r"\b(?:__)?asm(?:__)?\b"), ("src/kernels/", "src/cpu/", "src/emulator/"),
     "instructions belong in src/kernels, src/cpu and src/emulator"),
    (re.compile(r"\bnvrtc[A-Z]\w*|\bcu[A-Z]\w+\s*\(|\bCUDA_SUCCESS\b"), ("src/cuda/",),
     "driver and NVRTC calls belong in src/cuda"),
    (re.compile(r"\bnccl[A-Z]\w*|\bMPI_\w+"), ("src/dist/",), "communicators belong in src/dist"),
]

# header, where it may be included, why
ROOM_HEADERS = [
    (re.compile(r"^(hwy/|immintrin\.h|x86intrin\.h|arm_neon\.h)"), ("src/cpu/",), "vectors on the CPU belong in src/cpu"),
    (re.compile(r"^CLI/"), ("cli/",), "command-line parsing belongs in cli"),
    (re.compile(r"^nlohmann/"), ("src/core/", "src/plan/", "cli/"), "JSON is written by core, plan and cli"),
    (re.compile(r"^(gtest|gmock|rapidcheck)"), ("test/",), "test libraries belong in tests"),
    (re.compile(r"^(cuda|nvrtc|nccl)"), (), "the toolkit's headers are never included"),
]


@dataclass(frozen=True)
class Breach:
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Rule:
    allowed: frozenset
    only: str  # The one header of an allowed room, or "".


def read_rules(design):
    """The include table: room -> Rule."""
    rules = {}
    for line in design.splitlines():
        match = RULE_LINE.match(line)
        if match and (match["room"].startswith("src/") or match["room"] in TOP_FOLDERS):
            rules[match["room"]] = Rule(frozenset(match["allowed"].split()), match["only"] or "")
    return rules


def read_long_files(design):
    """The files that may pass the limit: path -> line of the table row that says why."""
    long_files = {}
    section = design.partition("Files past the limit")[2]
    for row in re.finditer(r"^\| `([^`]+)` \| (\S.*) \|$", section, re.MULTILINE):
        long_files[row[1]] = row[2]
    return long_files


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" and len(parts) > 2 else parts[0]


TEST_NAME = re.compile(r"^test/|_test\.cc$|_fixture\.(h|cc)$")


def find_tests(texts):
    """The test files among `texts` (path -> text): by name, or because only tests include them."""
    includers = {}
    for path, text in texts.items():
        for line in text.splitlines():
            match = INCLUDE.match(line)
            if match and match["quoted"]:
                includers.setdefault(match["quoted"], set()).add(path)
    tests = {path for path in texts if TEST_NAME.search(path)}
    while True:
        more = {path for path in texts if path.endswith(".h") and includers.get(path)
                and includers[path] <= tests} - tests
        if not more:
            return tests
        tests |= more


def target_room(path, header, root):
    """The room that an include names, or None for a header from outside the tree."""
    if header.startswith("kvilt/"):
        return "include"
    if header.startswith(("src/", "cli/", "test/", "bench/")):
        return room_of(header)
    beside = Path(path).parent / header
    return room_of(beside.as_posix()) if (root / beside).is_file() else None


def check_include(path, number, match, rules, root, is_test):
    header = match["quoted"] or match["angled"]
    room = room_of(path)
    target = target_room(path, header, root)
    if target is None:
        if room == "src/contract" and not is_test:
            yield Breach(path, number, f"src/contract includes nothing outside itself, but names {header}")
        if room == "include" and "/" in header:
            yield Breach(path, number, f"public headers include only std and kvilt/, but this names {header}")
        for pattern, places, why in ROOM_HEADERS:
            if pattern.match(header) and not path.startswith(places) and not is_test:
                yield Breach(path, number, f"{header}: {why}")
        return
    if target == room or is_test:
        return
    rule = rules.get(room)
    if rule is None:
        yield Breach(path, number, f"{room} has no line in the include table of docs/design.md")
    elif target not in rule.allowed:
        yield Breach(path, number, f"{room} may not include {target} ({header})")
    elif rule.only and target == "src/plan" and not header.endswith("/" + rule.only):
        yield Breach(path, number, f"{room} may include only {rule.only} of {target}, not {header}")


def blank_comments(text):
    """The text with comments and strings blanked, lines kept."""
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def check_file(path, text, rules, root, is_test):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield from check_include(path, number, match, rules, root, is_test)
    if path.endswith(".h") and "#pragma once" not in text and "#ifndef" not in text:
        if not path.endswith("-inl.h"):
            yield Breach(path, 1, "a header needs #pragma once")
    if is_test:
        return
    for number, line in enumerate(blank_comments(text).splitlines(), 1):
        for pattern, places, why in ROOM_WORDS:
            found = pattern.search(line)
            if found and not path.startswith(places):
                yield Breach(path, number, f"'{found[0].strip()}': {why}")


def source_files(root):
    for top in TOP_FOLDERS:
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and (path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt"):
                yield path


def check_tree(root):
    design = (root / "docs/design.md").read_text(encoding="utf-8")
    rules = read_rules(design)
    long_files = read_long_files(design)
    breaches = []
    if "src/core" not in rules:
        breaches.append(Breach("docs/design.md", 1, "the include table was not found"))
    unused = set(long_files)
    texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in source_files(root)}
    tests = find_tests(texts)
    for path, text in texts.items():
        if Path(path).suffix in CXX_SUFFIXES:
            breaches.extend(check_file(path, text, rules, root, path in tests))
        lines = text.count("\n")
        if lines > LINE_LIMIT:
            unused.discard(path)
            if path not in long_files:
                breaches.append(Breach(path, lines, f"{lines} lines, past {LINE_LIMIT}: split it, or give the "
                                       "reason under 'Files past the limit' in docs/design.md"))
    for path in sorted(unused):
        breaches.append(Breach("docs/design.md", 1, f"'Files past the limit' names {path}, which is not past it"))
    return breaches


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    breaches = check_tree(root)
    for breach in breaches:
        print(breach)
    print(f"check_layers: {len(list(source_files(root)))} files, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
