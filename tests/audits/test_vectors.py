"""Vectors of any model: planted people are named and linked, noise is not, and no file runs code."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from sklearn.naive_bayes import GaussianNB

from sfumato.audits.findings import Report
from sfumato.audits.vector_files import Vectors, read
from sfumato.audits.vectors import audit_vectors, name_people, split
from sfumato.errors import ConfigError, DataError


def planted(people: int = 32, each: int = 16, *, apart: float = 3.0, seed: int = 0) -> Vectors:
    """Vectors around a point of each person, and an attribute of each vector in a direction of its own."""
    draw = np.random.default_rng(seed)
    owners = np.arange(people).repeat(each)
    values = apart * draw.standard_normal((people, 16))[owners] + draw.standard_normal((len(owners), 16))
    smiles = draw.integers(0, 2, len(owners))
    values[:, 0] = 6 * smiles + draw.standard_normal(len(owners))
    rows = np.arange(len(owners))
    return Vectors(values.astype(np.float32), owners, {"smile": smiles}, rows, len(rows))


@pytest.fixture(scope="module")
def report() -> Report:
    return audit_vectors(planted(), subject="planted")


def figures(report: Report, name: str) -> dict:
    return dict(next(finding for finding in report.findings if finding.name == name).figures)


def test_planted_people_are_named_and_an_attribute_is_read(report: Report):
    named = figures(report, "named")
    assert list(named) == ["1", "10"]
    assert named["1"]["named"] > 0.9
    assert named["1"]["low"] <= named["1"]["named"] <= named["1"]["high"]
    assert named["1"]["chance"] == 1 / 8  # a panel is of one half of the people who are looked for
    assert figures(report, "attributes")["smile"]["right"] > 0.95
    assert report.sentence.startswith("From one vector a stranger names")
    assert [finding.verdict for finding in report.findings[:2]] == ["leaks", "leaks"]
    kinds = [(kind, n) for n in (1, 10) for kind in ("singling out", "linkability")]
    assert [(risk.kind, risk.releases) for risk in report.risks] == [*kinds, ("inference", 1)]


def test_remedies_name_fewer_and_the_answer_keeps_the_attribute_within_its_proof(report: Report):
    tried = figures(report, "forms")
    assert tried["sign bits"]["named"]["1"] > 0.5
    answer = tried["answer alone, one of 2 classes"]
    assert answer["kept"] > 0.95
    assert answer["named"]["1"] <= answer["proved"] + 0.05
    assert answer["proved"] == pytest.approx(2 / 8)
    assert "answer alone, one of 2 classes" in report.changes[0]


def test_vectors_that_show_nobody_name_nobody():
    noise = planted(people=64, each=4, apart=0.0)
    blank = Vectors(noise.values[:, 1:], noise.people, {}, noise.rows, noise.total)
    made = audit_vectors(blank, subject="noise")
    named = figures(made, "named")["1"]
    assert named["low"] < 1 / 16 < named["high"]
    assert figures(made, "twins")["linked"] < 0.03
    assert {finding.verdict for finding in made.findings} == {"not shown"}
    assert made.changes == ()


def test_without_people_twins_and_copies_are_found_by_their_rows():
    vectors = planted()
    copied = vectors.values.copy()
    copied[7] = copied[300] * 1.001
    made = audit_vectors(Vectors(copied, None, {}, vectors.rows + 1000, 5000), subject="unknown")
    assert figures(made, "twins")["linked"] > 0.9
    assert figures(made, "twins")["copies"] == 1
    assert made.findings[-1].table.rows == (("1007", "1300"),)
    assert "512 of 5,000 rows were read" in made.limits[0]


def test_spreads_name_as_many_as_gaussian_naive_bayes_names():
    """All means are 0, and each number has a spread of each person's own."""
    draw, owners = np.random.default_rng(4), np.arange(100).repeat(12)
    values = draw.normal(size=(1200, 64)) * np.exp(draw.normal(0, 0.7, (100, 64)))[owners]
    values, halves = values.astype(np.float32), split(owners, 0)
    named = name_people(values, halves, 0)[1].named.value
    rows = np.isin(owners, np.unique(owners[halves.asked])[:25])
    x, y, known = values[rows], owners[rows], np.arange(rows.sum()) % 2 == 0
    assert named > GaussianNB().fit(x[known], y[known]).score(x[~known], y[~known]) - 0.03 > 0.8


def hidden(where: str, people: int = 40, each: int = 8) -> np.ndarray:
    """Vectors of noise that say who they are in one number, or noise and a number that hides people."""
    draw, owners = np.random.default_rng(0), np.arange(people).repeat(each)
    values = draw.normal(size=(len(owners), 12))
    if where == "an index with gaps":
        values[:, 3] = 3 * np.arange(len(owners)) + draw.integers(0, 2, len(owners))
    elif where == "a decimal":
        values[:, 3] = values[:, 3].round(3) + owners * 1e-5
    elif where == "two digits":
        for place, digit in ((3, owners % 10), (7, owners // 10)):
            values[:, place] = np.sign(values[:, place]) * (np.abs(values[:, place]).round(3) + digit * 1e-4)
    elif where == "a spread":
        values[:, 3] *= np.exp(0.2 * owners)
    elif where == "a constant":
        values[:, 3] = owners
    return values


@pytest.mark.parametrize(
    ("where", "named", "numbers"),
    [
        ("nowhere", 0.2, []),
        ("an index with gaps", 0.8, ["number 3"]),
        ("a decimal", 0.8, ["number 3"]),
        ("two digits", 0.8, ["number 3", "number 7"]),
        ("a spread", 0.25, ["number 3"]),
        ("a constant", 0.8, ["number 3"]),
    ],
)
def test_the_numbers_that_carry_a_name_are_found_and_leaving_them_out_is_the_cure(
    tmp_path: Path, where: str, named: float, numbers: list[str]
):
    np.savez(tmp_path / "a.npz", v=hidden(where), who=np.arange(40).repeat(8))
    made = audit_vectors(read(tmp_path / "a.npz", people="who"), subject=where)
    stored = figures(made, "named")["1"]["named"]
    forms_named = [each["named"]["1"] for each in figures(made, "forms").values()]
    assert stored >= max(forms_named)  # no form names more than what it is computed from
    if not numbers:
        assert stored < named
        assert all(finding.name != "numbers" for finding in made.findings)
        return
    assert stored > named
    found = figures(made, "numbers")
    assert sorted(found["numbers"]) == numbers
    assert found["without"] < 0.25 < found["alone"]
    assert made.changes[0].startswith("Leave out number")


@pytest.mark.parametrize("factor", [1e3, 1e5, 1e9, 1e-7])
def test_one_number_on_another_scale_hides_nobody(tmp_path: Path, factor: float):
    vectors = planted()
    values = vectors.values.astype(np.float64)
    values[:, 1] = factor * np.random.default_rng(0).normal(size=len(values))
    np.savez(tmp_path / "a.npz", v=values, who=vectors.people)
    made = read(tmp_path / "a.npz", people="who")
    halves = split(made.people, 0)
    assert name_people(made.values, halves, 0)[1].named.value > 0.9


BESIDE = {
    "id": np.random.default_rng(1).permutation(10**6)[:160],
    "created_at": 1.7e12 + np.random.default_rng(2).integers(0, 10**9, 160),
    "__index_level_0__": np.arange(160) * 3,
    "Unnamed: 0": np.arange(160),
    "x1": np.random.default_rng(3).uniform(0, 900, 160),
    "score": np.random.default_rng(4).uniform(0, 1, 160),
    "path": np.array(["a.jpg"] * 160),
}


@pytest.mark.parametrize("prefix", ["e", "", "embedding_", "dim."])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_beside_the_vectors_are_left_out_and_named(tmp_path: Path, prefix: str, kind: str):
    values, who = planted(people=10).values, np.arange(10).repeat(16)
    columns = {**BESIDE, "who": who, **{f"{prefix}{number}": each for number, each in enumerate(values.T)}}
    if kind == "csv":
        with (tmp_path / "a.csv").open("w", newline="") as out:
            csv.writer(out).writerows([columns, *zip(*columns.values(), strict=True)])
    else:
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    made = read(tmp_path / f"a.{kind}", people="who")
    assert made.names == tuple(f"{prefix}{number}" for number in range(16))
    assert made.left_out == tuple(BESIDE)
    said = audit_vectors(made, subject="a").sentence
    assert "No part of the vectors, and not looked at: id, created_at, __index_level_0__" in said


def test_where_nothing_is_kept_the_answer_alone_is_advised():
    vectors = planted(people=40, each=10)
    label = np.random.default_rng(2).integers(0, 2, 40)[vectors.people]
    made = audit_vectors(replace(vectors, labels={"gender": label}), subject="a")
    assert made.changes[0].startswith("Nothing of gender is read beyond guessing")
    assert "keep the answer alone, one of 2 classes, or nothing" in made.changes[0]


def test_those_who_teach_are_not_those_who_are_named_and_both_need_two_vectors():
    with pytest.raises(DataError, match="0 of 40 people have two vectors or more: at least 8"):
        split(np.arange(40), seed=0)
    people = np.array([*np.arange(20).repeat(3), 20, 21])
    halves = split(people, seed=0)
    assert not set(people[halves.learned]) & set(people[halves.asked])
    assert {20, 21} <= set(people[halves.learned])  # with one vector each
    assert len(set(people[halves.asked])) == 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same vectors in each kind of file."""
    folder, vectors = tmp_path_factory.mktemp("vectors"), planted(people=10)
    values, names = vectors.values, [f"person {code}" for code in np.arange(10).repeat(16)]
    columns = {f"e{number}": column for number, column in enumerate(values.T)}
    np.save(folder / "a.npy", values)
    np.savez(folder / "a.npz", vectors=values, who=names)
    parquet.write_table(pyarrow.table({"who": names, **columns}), folder / "columns.parquet")
    with (folder / "columns.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["who", *columns], *zip(names, *columns.values(), strict=True)])
    return folder


@pytest.mark.parametrize("file", ["a.npy", "a.npz", "columns.parquet", "columns.csv"])
def test_all_kinds_of_files_hold_the_same(folder: Path, file: str):
    people = None if file == "a.npy" else "who"
    made = read(folder / file, people=people)
    values = planted(people=10).values
    np.testing.assert_allclose(made.values, values / np.sqrt(values.var(0).mean()), rtol=1e-5)
    if people is not None:
        assert made.people.tolist() == np.arange(10).repeat(16).tolist()


def test_of_a_million_rows_a_sample_is_read_before_arrays_are_made(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=(1_000_000, 2)).astype("f4")
    people = [f"p{n // 20_000}" for n in range(len(values))]
    table = pyarrow.table({"e0": values[:, 0], "e1": values[:, 1], "person": people})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", people="person")
    assert (len(found.values), found.total) == (50 * 150, 1_000_000)
    assert set(np.bincount(found.people)) == {0, 150} - ({0} if found.people.min() == 0 else set())
    scaled = values[found.rows].astype(np.float64)
    assert found.values == pytest.approx(scaled / np.sqrt(scaled.var(0).mean()), rel=1e-4)


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path: Path):
    np.savez_compressed(tmp_path / "a.npz", vectors=np.zeros((70_000_000, 1), np.float32))
    with pytest.raises(DataError, match="more than 32 times as many"):
        read(tmp_path / "a.npz")


def test_of_a_large_file_whole_people_are_sampled(tmp_path: Path):
    owners = np.concatenate([np.zeros(400), np.arange(1, 40).repeat(30)])
    np.savez(tmp_path / "a.npz", v=np.random.default_rng(0).random((len(owners), 4)), who=owners)
    made, again = (read(tmp_path / "a.npz", people="who", rows=500, seed=seed) for seed in (0, 0))
    counts = np.bincount(made.people)
    assert np.array_equal(made.rows, again.rows)
    assert (len(made.rows), made.total) == (500, len(owners))
    assert counts.max() <= 150
    assert sum(0 < count < 30 for count in counts) <= 1  # the last one drawn


BOTH = {"labels": ["age"], "people": "who"}
FLAT = np.random.default_rng(0).random((40, 4))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"v": np.array([[1, "a"]] * 20, object)}, {}, "Python objects, and reading them could run code"),
        ({"v": np.where(np.arange(4) == 2, np.nan, FLAT)}, {}, "row 0 holds nan, and 40 of 40 rows"),
        ({"v": FLAT * (np.arange(40) != 3)[:, None]}, {}, "row 3 is all zeros, as 1 of 40"),
        ({"v": FLAT[:, 0]}, {}, "has no array of vectors, \\(N, D\\); it has v of 40"),
        ({"v": FLAT.reshape(10, 4, 4)}, {}, "shape \\(10, 4, 4\\): vectors are rows .* reshape"),
        ({"v": FLAT, "w": FLAT}, {}, "several arrays of vectors .* --vectors"),
        ({"v": FLAT[:9]}, {}, "9 vectors of 4 numbers: at least 20"),
        ({"v": FLAT + 1j}, {}, "vectors of complex128: real numbers"),
        ({"v": np.ones((40, 4))}, {}, "all 40 vectors are equal"),
        ({"v": FLAT, "who": np.arange(9)}, {"people": "who"}, "who has 9 entries for 40 vectors"),
        ({"v": FLAT, "who": [""] * 40}, {"people": "who"}, "who is empty in row 0, as in 40 of 40"),
        ({"v": FLAT, "who": np.arange(40)}, {"people": "wo"}, "no column 'wo' .* did you mean 'who'"),
        ({"v": FLAT, "age": range(40), "who": [0] * 40}, BOTH, "age has 40 different values: .* 2 to 20 "),
        ({"v": FLAT, "age": range(40)}, {"labels": ["age"]}, "--labels age: an attribute is learned from"),
    ],
)
def test_a_file_without_such_vectors_says_why(tmp_path: Path, arrays: dict, options: dict, message: str):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises((DataError, ConfigError), match=message):
        read(tmp_path / "a.npz", **options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pkl", b"", "a pickle is not, since it could run code"),
        ("a.npz", b"not a zip", "damaged, or not a .npz file"),
        ("a.parquet", b"PAR1", "cannot be read as Parquet"),
        ("a.csv", b"e0,e1,e2\n1,1,Anna\n", "e2 does not hold numbers .*Anna.* --people or --labels"),
        ("a.csv", b"id,left,right\n1,1,2\n", "id of 1, left of 1, .* the beginning of the vectors'"),
        ("a.csv", b"id,vector\n1,[1. 2.]\n", "whole vectors in cells are written by NumPy: np.savez"),
        ("a.csv", b'e0,e1,e2\n"[1, 2]",1,1\n', "e0 does not hold numbers .* printed into a cell are not"),
        ("list.parquet", b"", "e holds lists of numbers, and columns of numbers are read: write the lists"),
        ("a.csv", b"e0;e1;e2\n0,1;0,2;0,3\n", "Numbers have a point for decimals"),
    ],
)
def test_a_file_of_another_kind_says_what_to_write(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    if name == "list.parquet":
        parquet.write_table(pyarrow.table({"e": FLAT.tolist()}), tmp_path / name)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


def test_the_command_runs_without_pytorch(folder: Path):
    arguments = ["audit", "vectors", str(folder / "a.npz"), "--people", "who", "--for", "dpo", "--json"]
    arguments += ["--html", str(folder / "a.html")]
    code = (
        f"import sys; from sfumato.cli import main; sys.argv = ['sfumato', *{arguments}]\n"
        "try: main()\n"
        "except SystemExit as stop: code = stop.code\n"
        "assert code == 1 and 'torch' not in sys.modules, code"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=True)
    assert json.loads(done.stdout)["audit"] == "evidence"
    assert "From one vector" in (folder / "a.html").read_text()
