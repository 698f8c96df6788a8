"""The tables of `python -m tests.conformance`: what passes, what does not, and the exit code."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def main(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return import_module("tests.conformance.__main__")


def run(main, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["conformance", *arguments])
    code = main.main()
    return code, capsys.readouterr().out


@pytest.fixture
def tables(main, monkeypatch):
    """One table instead of all, whose rows are chosen."""
    table = import_module("tests.conformance.table")

    def broken():
        raise ValueError("no\nsuch thing")

    rows = {
        "good": lambda: table.Row("good", ("1", "2")),
        "bad": lambda: table.Row("bad", ("1", "3"), "too far"),
        "broken": broken,
    }

    def chosen(part):
        return table.Table("Some", ("a", "b"), (table.checked(n, 2, rows[n]) for n in rows if part in n))

    monkeypatch.setattr(main, "TABLES", {"some": chosen})


@pytest.mark.usefixtures("tables")
def test_rows_that_fail_make_the_exit_code(main, monkeypatch, capsys):
    code, out = run(main, monkeypatch, capsys)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert code == 1
    assert lines["good"] == ["good", "1", "2", "pass"]
    assert lines["bad"] == ["bad", "1", "3", "too", "far"]
    assert lines["broken"] == ["broken", "ValueError:", "no", "such", "thing"]
    assert out.splitlines()[-1] == "1 of 3 rows pass"


@pytest.mark.usefixtures("tables")
def test_the_rows_that_are_asked_for(main, monkeypatch, capsys):
    assert run(main, monkeypatch, capsys, "some", "-k", "good")[0] == 0
    code, out = run(main, monkeypatch, capsys, "-k", "nothing")
    assert code == 1  # what compares nothing shows nothing
    assert out.endswith("0 of 0 rows pass\n")


def test_a_table_that_does_not_exist(main, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(main, monkeypatch, capsys, "tables")
    assert ended.value.code == 2
    assert "expected some of types, architectures, texts" in capsys.readouterr().err


def test_every_recorded_model_and_type_has_a_row(main):
    architectures = import_module("tests.conformance.architectures")
    assert {"archs", "more"} <= set(architectures.collections())
    assert len(import_module("support.measured_types").type_names()) >= 26
