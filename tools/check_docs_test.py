#!/usr/bin/env python3
"""Negative controls of check_docs.py."""

import tempfile
import unittest
from pathlib import Path

import check_docs

CASE = "| P51 | what went wrong | what is right |\n"
TEST = "TEST(Softmax, P51_extreme_logits) {}\n"


class CheckDocsTest(unittest.TestCase):

    def complaints(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return check_docs.check(root)

    def test_right_documents_pass(self):
        self.assertEqual(self.complaints({
            "README.md": "[design](docs/design.md) and [the web](https://example.org)",
            "docs/design.md": "[up](../README.md)",
            "docs/cases.md": CASE,
            "src/cpu/a_test.cc": TEST,
            "include/kvilt/a.h": "// docs/design.md has it.\n",
        }), [])

    def test_dead_link(self):
        self.assertIn("leads nowhere", self.complaints({"README.md": "[x](docs/none.md)"})[0])

    def test_missing_document(self):
        self.assertIn("does not exist", self.complaints({"src/a.h": "// docs/none.md\n"})[0])

    def test_cases_and_tests_match(self):
        self.assertIn("no row for P51", self.complaints({"src/cpu/a_test.cc": TEST})[0])
        self.assertIn("no test is named", self.complaints({"docs/cases.md": CASE})[0])


if __name__ == "__main__":
    unittest.main()
