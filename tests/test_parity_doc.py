"""docs/nemo-gym-parity.md and bench/parity_model_calls.py name the same rules."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rules_of_the_script() -> dict[str, str]:
    tree = ast.parse((ROOT / "bench" / "parity_model_calls.py").read_text("utf-8"))
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "RULES"
    )


def rules_of_the_page() -> list[list[str]]:
    page = (ROOT / "docs" / "nemo-gym-parity.md").read_text("utf-8")
    rows = [re.split(r"\s*\|\s*", row.strip("| ")) for row in page.split("\n") if row.startswith("|")]
    return rows[2:]


def test_every_rule_of_the_script_stands_on_the_page_and_the_other_way_round():
    assert {row[0] for row in rules_of_the_page()} == set(rules_of_the_script())


def test_every_rule_on_the_page_says_field_condition_value_and_reason():
    for row in rules_of_the_page():
        assert len(row) == 5, row[0]
        assert all(row), row[0]


def test_no_rule_names_a_case():
    script = (ROOT / "bench" / "parity_model_calls.py").read_text("utf-8")
    assert not re.search(r"\b(chat|responses|messages)-(json|stream|tools|exc|error|req|usage)-", script)
