#!/usr/bin/env python3
"""Negative controls of check_layers.py: each kind of breach, put into a small tree, must be found."""

import tempfile
import unittest
from pathlib import Path

import check_layers

DESIGN = """
include       ->
src/contract  ->
src/core      -> include
src/plan      -> include src/core src/contract
src/cpu       -> include src/core src/contract src/plan        (plan_data.h only)
cli           -> include src/core src/plan

## Files past the limit

| file | why |
|---|---|
"""


class CheckLayersTest(unittest.TestCase):

    def breaches(self, files, long_files=""):
        """The breaches of a tree that holds `files` (path -> text)."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in {"docs/design.md": DESIGN + long_files, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return [f"{breach.path}: {breach.text}" for breach in check_layers.check_tree(root)]

    def assert_clean(self, files, long_files=""):
        self.assertEqual(self.breaches(files, long_files), [])

    def assert_found(self, files, words, long_files=""):
        found = self.breaches(files, long_files)
        self.assertTrue(any(words in text for text in found), f"'{words}' not in {found}")

    def test_right_includes_pass(self):
        self.assert_clean({
            "src/plan/a.cc": '#include "kvilt/plan.h"\n#include "src/core/b.h"\n#include <vector>\n',
            "src/cpu/b.cc": '#include "src/plan/plan_data.h"\n#include "hwy/highway.h"\n',
            "src/contract/c.h": '#pragma once\n#include "types.h"\n',
            "src/contract/types.h": "#pragma once\n",
            "src/cpu/b_test.cc": '#include <gtest/gtest.h>\n#include "src/oracle/x.h"\n',
        })

    def test_wrong_room(self):
        self.assert_found({"src/core/a.cc": '#include "src/plan/a.h"\n'}, "src/core may not include src/plan")
        self.assert_found({"cli/a.cc": '#include "src/cpu/a.h"\n'}, "cli may not include src/cpu")
        self.assert_found({"src/cpu/a.cc": '#  include "src/plan/tile.h"\n'}, "only plan_data.h")

    def test_headers_of_tests_alone_may_include_any_room(self):
        fixture = {"src/cpu/random.h": '#pragma once\n#include <rapidcheck.h>\n#include "src/oracle/x.h"\n'}
        user = '#include "src/cpu/random.h"\n'
        self.assert_clean({**fixture, "src/cpu/a_test.cc": user})
        self.assert_found({**fixture, "src/cpu/a_test.cc": user, "src/cpu/a.cc": user}, "test libraries")
        self.assert_found(fixture, "may not include src/oracle")

    def test_contract_includes_nothing(self):
        self.assert_found({"src/contract/a.h": "#pragma once\n#include <cstdint>\n"}, "names cstdint")
        self.assert_found({"src/contract/a.h": '#pragma once\n#include "kvilt/dtype.h"\n'},
                          "src/contract may not include include")

    def test_public_header_includes_std_only(self):
        self.assert_found({"include/kvilt/a.h": "#pragma once\n#include <fmt/core.h>\n"}, "names fmt/core.h")
        self.assert_found({"include/kvilt/a.h": '#pragma once\n#include "src/core/a.h"\n'},
                          "include may not include src/core")

    def test_room_without_a_line(self):
        self.assert_found({"src/attic/a.cc": '#include "src/core/a.h"\n'}, "no line in the include table")

    def test_words_of_one_room(self):
        self.assert_found({"src/plan/a.cc": 'auto x = std::getenv("X");\n'}, "'getenv'")
        self.assert_found({"src/cpu/a.cc": "__shared__ int x;\n"}, "'__shared__'")
        self.assert_found({"src/plan/a.cc": "cuInit(0);\n"}, "'cuInit('")
        self.assert_found({"src/plan/a.cc": "#include <immintrin.h>\n"}, "belong in src/cpu")
        self.assert_found({"src/plan/a.cc": '#include "CLI/CLI.hpp"\n'}, "belongs in cli")
        self.assert_clean({"src/core/env.cc": 'auto x = std::getenv("X");\n',
                           "src/plan/a.cc": '// getenv("X") is not called here\nauto y = "getenv";\n'})

    def test_long_file(self):
        long_file = {"src/plan/a.cc": "\n" * 401}
        self.assert_found(long_file, "past 400")
        self.assert_clean(long_file, "| `src/plan/a.cc` | A table that is read whole. |\n")
        self.assert_found({"src/plan/a.cc": "\n"}, "which is not past it",
                          "| `src/plan/a.cc` | A reason that is no longer needed. |\n")

    def test_design_without_table(self):
        global DESIGN
        kept, DESIGN = DESIGN, "no table\n"
        try:
            self.assert_found({}, "the include table was not found")
        finally:
            DESIGN = kept

    def test_missing_pragma_once(self):
        self.assert_found({"src/core/a.h": "int x;\n"}, "needs #pragma once")


if __name__ == "__main__":
    unittest.main()
