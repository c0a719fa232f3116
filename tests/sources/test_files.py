"""Files as sources: the same numbers from every format, text made numbers, and hostile files named with their place."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from ksparse import KSparseRegressor, load
from ksparse.sources import Files, open_files, storage
from ksparse.sources.encoding import all_finite, spread

RNG = np.random.default_rng(7)
ROWS = RNG.standard_normal((300, 7))
Y = RNG.standard_normal(300)
NAMES = [f"c{j}" for j in range(7)]
FRAME = pd.DataFrame(np.column_stack([ROWS, Y]), columns=[*NAMES, "y"])
TABLE = pa.Table.from_pandas(FRAME)


def dense(source):
    rows = source.load()
    return rows.toarray() if hasattr(rows, "toarray") else rows


def write(path):
    """The table in the format that the name tells."""
    name = path.name
    if name.endswith((".gz", ".bz2")):
        plain = path.with_suffix("")
        write(plain)
        path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}[path.suffix](plain.read_bytes()))
    elif name.endswith((".csv", ".tsv")):
        FRAME.to_csv(path, index=False, sep="," if name.endswith("csv") else "\t", float_format="%.17g")
    elif name.endswith(".parquet"):
        pq.write_table(TABLE, path, row_group_size=70)
    elif name.endswith(".feather"):
        feather.write_feather(TABLE, path, chunksize=90)
    elif name == "stream.arrow":
        with pa.ipc.new_stream(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=90)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=90)
    elif name.endswith("svm"):
        dump_svmlight_file(ROWS, Y, str(path), zero_based=False)
    elif name.endswith(".npy"):
        np.save(path, FRAME.to_numpy())
    else:
        np.savez(path, X=ROWS, y=Y)
    return path


FORMATS = [
    "a.csv", "a.tsv", "a.csv.gz", "a.csv.bz2", "a.parquet", "a.feather", "a.arrow", "stream.arrow", "a.svm",
    "a.libsvm.gz", "a.libsvm.bz2", "a.npy", "a.npz",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_numbers(tmp_path, name):
    source = open_files(write(tmp_path / name), memory="1MB")
    assert source.shape == ROWS.shape
    assert len(list(source.map(lambda block: None))) > 0
    np.testing.assert_allclose(dense(source), ROWS, rtol=1e-15)
    np.testing.assert_allclose(source.y, Y, rtol=1e-15)
    some = np.array([1, 4, 6])
    for block in source.blocks(some):
        assert block.dtype == source.dtype
        assert sparse.issparse(block) or block.flags.c_contiguous
    parts = list(source.map(lambda b: b.copy() if isinstance(b, np.ndarray) else b.toarray(), columns=some))
    np.testing.assert_allclose(np.concatenate(parts), ROWS[:, some], rtol=1e-15)
    assert json.loads(json.dumps(source.encoding)) == source.encoding
    np.testing.assert_allclose(dense(Files.like(tmp_path / name, source.encoding)), ROWS, rtol=1e-15)


def test_a_fit_on_a_file_is_the_fit_in_memory(tmp_path):
    from ksparse import HTSVRG, minimize

    settings = {"k": 3, "solver": HTSVRG(m=200, stages=5), "random_state": 1}
    expected = minimize(ROWS, Y, **settings).x
    for name in ("a.parquet", "a.csv", "a.svm", "a.npy"):
        source = open_files(write(tmp_path / name), memory="1MB")
        np.testing.assert_allclose(minimize(source, source.y, **settings).x, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "libsvm"])
def test_a_folder_is_read_in_the_order_of_names(tmp_path, ending):
    for low, name in ((200, "c"), (0, "a"), (100, "b")):
        part = FRAME[low : low + 100]
        if ending == "csv":
            part.to_csv(tmp_path / f"{name}.csv", index=False, float_format="%.17g")
        elif ending == "parquet":
            part.to_parquet(tmp_path / f"{name}.parquet")  # with the index that pandas adds
        elif ending == "feather":
            feather.write_feather(pa.Table.from_pandas(part, preserve_index=False), tmp_path / f"{name}.feather")
        else:
            dump_svmlight_file(ROWS[low : low + 100], Y[low : low + 100], str(tmp_path / f"{name}.libsvm"))
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "README.txt").write_text("not data")
    source = open_files(tmp_path)
    np.testing.assert_allclose(dense(source), ROWS, rtol=1e-15)
    np.testing.assert_allclose(source.y, Y, rtol=1e-15)


def test_columns_and_targets_are_chosen(tmp_path):
    path = write(tmp_path / "a.parquet")
    source = open_files(path, target="c2", columns=["c5", "c0", "y"])
    assert (source.names, source.target) == (["c5", "c0", "y"], "c2")
    np.testing.assert_array_equal(source.load(), FRAME[["c5", "c0", "y"]])
    np.testing.assert_array_equal(source.y, ROWS[:, 2])
    assert open_files(path, drop=["y", "c1"]).target == "c6"
    assert open_files(path, target=False).y is None
    np.save(tmp_path / "t.npy", Y)
    np.save(tmp_path / "x.npy", np.asfortranarray(ROWS.astype(np.float32)))
    matrix = open_files(tmp_path / "x.npy", target=tmp_path / "t.npy")
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix.load(), ROWS.astype(np.float32))
    np.testing.assert_array_equal(matrix.y, Y)


def test_only_the_wanted_columns_of_a_parquet_file_are_read(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    source = open_files(path)
    asked = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda f, **k: asked.append(k["columns"]) or real(f, **k))
    list(source.blocks(np.array([2, 5])))
    assert asked == [["c2", "c5"]]


def test_numbers_of_any_kind(tmp_path):
    columns = {
        "i": pa.array([1, 2, None], pa.int64()), "u": pa.array([1, 255, 0], pa.uint8()),
        "d": pa.array([1, 2, 3], pa.int64()).cast(pa.decimal128(22, 2)), "h": pa.array([0.5, 1, 2], pa.float16()),
        "big": pa.array([2**62 + 1, 0, 1], pa.int64()), "y": pa.array([1, 2, 3], pa.int8()),
    }  # fmt: skip
    pq.write_table(pa.table({k: v for k, v in columns.items() if k != "h"}), tmp_path / "a.parquet")
    source = open_files(tmp_path / "a.parquet", missing="zero")
    np.testing.assert_array_equal(source.load(), [[1, 1, 1, 2.0**62], [2, 255, 2, 0], [0, 0, 3, 1]])
    feather.write_feather(pa.table({"h": columns["h"], "f": columns["u"].cast(pa.float32())}), tmp_path / "a.feather")
    narrow = open_files(tmp_path / "a.feather", target=False)
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow.load(), [[0.5, 1], [1, 255], [2, 0]])


# --- text and missing values -----------------------------------------------------------------------------------------
MIXED = pd.DataFrame(
    {
        "colour": ["red", "blue", None, "red", "green, light"], "size": [1.0, np.nan, 3.5, 4, 5],
        "flag": [True, False, True, True, False], "rank": [3, 1, 3, 2, 1], "label": ["yes", "no", "no", "yes", "no"],
    }
)  # fmt: skip


def mixed(folder, name):
    if name.endswith("csv"):
        MIXED.to_csv(folder / name, index=False)
    else:
        MIXED.astype({"colour": "category"}).to_parquet(folder / name)
    return folder / name


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("missing", ["mean", "zero"])
def test_text_becomes_columns_and_gaps_are_filled(tmp_path, name, missing):
    source = open_files(mixed(tmp_path, name), missing=missing, categories=["rank"])
    np.testing.assert_array_equal(source.y, MIXED["label"].to_numpy(str))
    levels = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(MIXED[["colour"]].dropna())
    strategy = {"strategy": "mean"} if missing == "mean" else {"strategy": "constant", "fill_value": 0.0}
    with_zeros = levels.transform(MIXED[["colour"]].fillna("none of them"))
    expected = np.column_stack(
        [
            with_zeros, SimpleImputer(**strategy).fit_transform(MIXED[["size"]]), pd.get_dummies(MIXED["flag"]),
            pd.get_dummies(MIXED["rank"]),
        ]
    )  # fmt: skip
    np.testing.assert_allclose(source.load(), expected.astype(float), rtol=1e-15)
    assert source.names == [
        "colour=blue", "colour=green, light", "colour=red", "size", "flag=False", "flag=True", "rank=1", "rank=2",
        "rank=3",
    ]  # fmt: skip
    some = np.array([1, 3, 5, 7])
    np.testing.assert_allclose(next(source.blocks(some)), expected[:, some].astype(float))
    assert open_files(tmp_path / name, missing=missing, drop=["colour", "label"]).names[0] == "size"


def test_missing_values_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"a.csv: the value in row 2 \(line 4\), column 'colour' is missing; missing="):
        open_files(mixed(tmp_path, "a.csv"), drop=["size"]).load()
    with pytest.raises(ValueError, match=r"a.parquet: the value in row 1, column 'size' is missing"):
        open_files(mixed(tmp_path, "a.parquet"), drop=["colour"]).load()
    (tmp_path / "b.csv").write_text("a,b,y\n1,?,3\n\n2,5,6\n4,6,7\n")
    np.testing.assert_array_equal(open_files(tmp_path / "b.csv", na=["?"], missing="mean").load()[0], [1, 5.5])


def test_another_file_is_read_the_same_way(tmp_path):
    encoding = json.loads(json.dumps(open_files(mixed(tmp_path, "a.csv"), missing="mean").encoding))
    other = pd.DataFrame(
        {"rank": [1, 2], "extra": ["?", "!"], "flag": [True, False], "size": [np.nan, 1], "colour": ["red", "pink"]}
    )
    other.to_parquet(tmp_path / "b.parquet")
    other.to_csv(tmp_path / "b.csv", index=False)
    for name in ("b.parquet", "b.csv"):
        source = Files.like(tmp_path / name, encoding)
        np.testing.assert_allclose(source.load(), [[0, 0, 1, 13.5 / 4, 0, 1, 1], [0, 0, 0, 1, 1, 0, 2]])
        assert source.y is None
        (note,) = source.notes
        assert "column 'colour': 'pink' (1 row) is none of the known categories" in note
    with pytest.raises(ValueError, match=r"b.csv has no column 'label', the target"):
        Files.like(tmp_path / "b.csv", encoding, target_optional=False)
    other.rename(columns={"size": "Size"}).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(ValueError, match=r"c.csv has no column 'size', which the model needs \(there is 'Size'\)"):
        Files.like(tmp_path / "c.csv", encoding)
    other.assign(size=["small", "large"]).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(ValueError, match="column 'size' holds text, but the model knows it as numbers"):
        Files.like(tmp_path / "d.csv", encoding)
    with pytest.raises(ValueError, match="columns cannot be matched"):
        Files.like(write(tmp_path / "a.svm"), encoding)


def test_another_matrix_is_read_the_same_way(tmp_path):
    encoding = open_files(write(tmp_path / "a.npy")).encoding
    np.save(tmp_path / "b.npy", ROWS)
    source = Files.like(tmp_path / "b.npy", encoding)
    assert source.y is None
    np.testing.assert_array_equal(source.load(), ROWS)
    np.save(tmp_path / "b.npy", ROWS[:, 1:])
    with pytest.raises(ValueError, match=r"b.npy must hold 7 columns, as the model's data did, got 6"):
        Files.like(tmp_path / "b.npy", encoding)


SPOILED = {
    "no dict": ([], "encoding must be a dict"),
    "version": ({"version": 9}, "must have version 1, got 9"),
    "kind": ({"kind": "tabel"}, "of a kind of table, libsvm, array, got 'tabel'"),
    "no columns": ({"columns": []}, "columns must be a list of at least one column"),
    "a column": ({"columns": [3]}, "column 0 must be an object with a name, got 3"),
    "a fill": ({"columns": [{"name": "a", "fill": "1"}]}, r"column 0 \('a'\): fill must be a finite number"),
    "levels": ({"columns": [{"name": "a", "levels": "red"}]}, "levels must be a list of words"),
    "twice": ({"columns": [{"name": "a", "fill": 0}] * 2}, "the column 'a' is there twice"),
    "missing": ({"missing": "drop"}, "missing must be one of 'error', 'mean', 'zero', got 'drop'"),
    "target": ({"target": "y"}, "target must be null or hold a name and labels"),
    "na": ({"na": "?"}, "na must be a list of words"),
    "delimiter": ({"delimiter": 3}, "delimiter must be one character"),
    "libsvm": ({"kind": "libsvm", "features": 0}, "features must be an integer of at least 1, got 0"),
    "based": ({"kind": "libsvm", "features": 3, "zero_based": "no"}, "zero_based must be"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_malformed_encodings_are_refused(tmp_path, case):
    change, message = SPOILED[case]
    encoding = open_files(mixed(tmp_path, "a.csv"), missing="mean").encoding
    with pytest.raises(ValueError, match=message):
        Files.like(tmp_path / "a.csv", {**encoding, **change} if isinstance(change, dict) else change)


# --- LIBSVM ----------------------------------------------------------------------------------------------------------
def test_libsvm_counts_from_0_or_1_over_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr("ksparse.sources.libsvm.PIECE", 64)
    rows = sparse.random(200, 30, 0.2, random_state=3, format="lil")
    rows[:, 0] = 0  # many pieces without column 0
    rows[199, 0] = 2.5
    rows = rows.tocsr()
    for zero_based in (True, False):
        dump_svmlight_file(rows, np.arange(200.0), str(tmp_path / "a.svm"), zero_based=zero_based, comment="a comment")
        source = open_files(tmp_path / "a.svm")
        expected, y = load_svmlight_file(str(tmp_path / "a.svm"))
        assert source.encoding["zero_based"] is zero_based
        assert source.entries == expected.nnz
        np.testing.assert_array_equal(source.load().toarray(), expected.toarray())
        np.testing.assert_array_equal(source.y, y)
        for cache in (False, tmp_path):
            again = open_files(tmp_path / "a.svm", cache=cache, memory="1MB")
            np.testing.assert_array_equal(again.load().toarray(), expected.toarray())
    (tmp_path / "one.svm").write_text("1 1:2 3:4\n")
    assert open_files(tmp_path / "one.svm").shape == (1, 3)
    assert open_files(tmp_path / "one.svm", zero_based=True).shape == (1, 4)
    assert open_files(tmp_path / "one.svm", zero_based=False).load().toarray().tolist() == [[2, 0, 4]]


def test_libsvm_with_millions_of_columns(tmp_path):
    (tmp_path / "a.svm").write_text("1 qid:1 5:1 20000000:2 # far\n\n# nothing\n-1 2147483647:3\n")
    source = open_files(tmp_path / "a.svm", memory="16GB")
    assert source.shape == (2, 2**31 - 1)
    with pytest.raises(
        ValueError, match=r"a.svm: line 4: column 2147483647 is too far: memory= has room for 134217728"
    ):
        open_files(tmp_path / "a.svm", memory="1GB")
    assert source.names is None
    block = next(source.blocks(np.array([4, 19_999_999, 30_000_000])))
    np.testing.assert_array_equal(block.toarray(), [[1, 2, 0], [0, 0, 0]])
    like = Files.like(tmp_path / "a.svm", {**source.encoding, "features": 10})
    assert like.shape == (2, 10)
    assert like.load().toarray()[0, 4] == 1
    assert "2 numbers are in columns after the 10 known ones" in like.notes[0]


def test_libsvm_says_from_which_number_columns_count(tmp_path):
    zero, one = tmp_path / "zero.svm", tmp_path / "one.svm"
    zero.write_text("1 0:1 1:2 2:3\n2 0:4 2:5\n")
    one.write_text("1 1:1 2:2 3:3\n2 1:4 3:5\n")
    of_zero, of_one = open_files(zero), open_files(one)
    assert of_zero.notes == of_one.notes == []
    (tmp_path / "both.svm").write_text(zero.read_text() + one.read_text())
    assert (
        "both.svm: columns count from 0, because 2 of 4 rows have a column 0"
        in open_files(tmp_path / "both.svm").notes[0]
    )
    assert open_files(tmp_path / "both.svm", zero_based=True).notes == []
    assert Files.like(zero, of_zero.encoding).notes == Files.like(one, of_one.encoding).notes == []
    notes = Files.like(one, of_zero.encoding).notes
    assert "one.svm: there is no column 0, but the model's data count columns from 0" in notes[0]
    assert "2 numbers are in columns after the 3 known ones" in notes[1]
    same = Files.like(one, of_zero.encoding, zero_based=False)
    assert same.notes == []
    np.testing.assert_array_equal(dense(same), dense(of_zero))
    with pytest.raises(ValueError, match=r"line 1: there is a column 0, but columns are to count from 1 here"):
        Files.like(zero, of_one.encoding)
    np.testing.assert_array_equal(dense(Files.like(zero, of_one.encoding, zero_based=True)), dense(of_one))
    with pytest.raises(ValueError, match=r"zero_based is for LIBSVM files, got it with a.csv"):
        Files.like(write(tmp_path / "a.csv"), open_files(tmp_path / "a.csv").encoding, zero_based=True)
    folder = tmp_path / "parts"
    folder.mkdir()
    zero.rename(folder / "b.svm")
    one.rename(folder / "a.svm")
    with pytest.raises(ValueError, match=r"b.svm has a column 0, but a.svm has none: .*zero_based=True"):
        open_files(folder)
    assert open_files(folder, zero_based=True).shape == (4, 4)


# --- hostile files ---------------------------------------------------------------------------------------------------
GOOD = io.BytesIO()
pq.write_table(TABLE, GOOD)
GOOD = GOOD.getvalue()
FOOT = len(GOOD) - 8 - int.from_bytes(GOOD[-8:-4], "little")
MATRIX = io.BytesIO()
np.save(MATRIX, ROWS)
MATRIX = MATRIX.getvalue()
LONG = b"a,b,y\n" + b"1,2,3\n" * 20_000  # more than the block that tells what columns are
HOSTILE = {
    "text in numbers": ("a.csv", b"x,y\n1,2\n3,4\n5,oops\n", r"'oops' stands in row 2 \(line 4\), column 'y'"),
    "text far behind": ("a.csv", LONG + b"1.5,?,3\n", r"'\?' stands in row 20000 \(line 20002\), column 'b'"),
    "ragged": ("a.csv", b"x,y\n1,2\n\n3\n", r"row 1 \(line 4\) has 1 values, the header has 2 names"),
    "ragged far behind": ("a.csv", LONG + b"1,2\n", r"row 20000 \(line 20002\) has 2 values"),
    "a gap": ("a.csv", b"x,y\n,1\n", r"row 0 \(line 2\), column 'x' is missing"),
    "a gap behind lines": ("a.csv", b'x,t,y\n1,"two\nlines",2\n,u,2\n', r"row 1 \(line 4\), column 'x' is missing"),
    "a gap in the target": (
        "a.csv",
        b"x,y\n1,\n",
        r"row 0 \(line 2\), column 'y' \(the target\) is missing; .*leave the row",
    ),
    "infinite": ("a.csv", b"x,y\n1,2\n-inf,3\n", r"row 1 \(line 3\), column 'x' is -inf: numbers must be finite"),
    "infinite target": ("a.csv", b"x,y\n1,2\n3,inf\n", r"column 'y' \(the target\) is inf"),
    "twice": ("a.csv", b"x,x\n1,2\n", "the column 'x' is there twice"),
    "header too long": ("a.csv", b"x,y,z\n1,2\n", r"row 0 \(line 2\) has 2 values, the header has 3 names"),
    "one column": ("a.csv", b"x\n1\n", "at least two columns"),
    "delimiter": ("a.csv", b"x;y\n1;2\n", "say delimiter=';'"),
    "no header": ("a.csv", b"1,2\n3,4\n", "a header with the names of the columns is needed"),
    "a quotation mark": (
        "a.csv",
        b'"x,y\n' + b"1,2\n" * 9999,
        "line .* has a field of more than 16,384 characters; perhaps a quotation mark is missing",
    ),
    "a quotation mark behind": (
        "a.csv",
        b"x,y\n" + b'"1,2\n' + b"1,2\n" * 99_999,
        "line .* has a field of more than 16,384 characters; perhaps a quotation mark is missing",
    ),
    "an index": ("a.csv", b",x,y\n0,1,2\n", r"column 0 \(from 0\) has no name in the header; pandas"),
    "dates": ("a.csv", b"d,y\n2020-01-01,2\n", r"column 'd' holds date32\[day\].*drop=\['d'\]"),
    "many texts": ("a.csv", b"t,y\n" + b"".join(b"w%d,1\n" % i for i in range(1500)), "'t' holds more than 1000 diff"),
    "not UTF-8": ("a.csv", b"t,y\nu,1\n\xff\xfe,2\n", r"row 1 \(line 3\), column 't' is not in UTF-8"),
    "header only": ("a.csv", b"x,y\n", "there are no rows after the header"),
    "half a header": ("a.csv", b"x,y", "a.csv cannot be read: there are no rows after the header"),
    "Latin-1 header": ("a.csv", b"caf\xe9,y\n1,2\n", "a.csv cannot be read: its header is not in UTF-8: .*save it as"),
    "UTF-16": ("a.csv", "x,y\n1,2\n".encode("utf-16"), "a.csv cannot be read: it is in UTF-16 or is not text"),
    "UTF-16 without a mark": ("a.csv", "x,y\n1,2\n".encode("utf-16-le"), "a.csv cannot be read: it is in UTF-16"),
    "empty": ("a.csv", b"", "a.csv cannot be read: it is empty"),
    "empty inside": ("a.csv.gz", gzip.compress(b""), "it holds no header"),
    "no gzip": ("a.csv.gz", b"x,y\n1,2\n", "Not a gzipped file"),
    "gzip cut off": ("a.csv.gz", gzip.compress(LONG)[:-30], "a.csv.gz cannot be read: .*ended before"),
    "bzip2 cut off": ("a.csv.bz2", bz2.compress(LONG)[:-30], "a.csv.bz2 cannot be read"),
    "text as Parquet": ("a.parquet", b"x,y\n1,2\n", "a.parquet cannot be read: .*not a parquet file"),
    "Parquet cut off": ("a.parquet", GOOD[:-20], "a.parquet cannot be read: it is damaged, cut off, or of another"),
    "Parquet garbled": (
        "a.parquet",
        GOOD[:FOOT] + b"\xff" * 64 + GOOD[FOOT + 64 :],
        "a.parquet cannot be read: it is damaged",
    ),
    "Parquet cut in half": ("a.parquet", GOOD[: len(GOOD) // 2], "a.parquet cannot be read"),
    "Parquet with a hole": ("a.parquet", GOOD[:20] + bytes(200) + GOOD[220:], "a.parquet cannot be read"),
    "text as Arrow": ("a.arrow", b"x,y\n1,2\n", "a.arrow cannot be read"),
    "LIBSVM text": ("a.svm", b"1 1:2\n1 2:x\n", "a.svm cannot be read as LIBSVM: line 2: .*'1 2:x'"),
    "LIBSVM no colon": ("a.svm", b"1 1:2\n# c\n\n1 2\n", "line 4: a number, a colon and a number are needed: '1 2'"),
    "LIBSVM order": ("a.svm", b"1 2:1 1:3\n", "line 1: .*sorted and unique"),
    "LIBSVM label": ("a.svm", b"yes 2:1\n", "line 1: could not convert"),
    "LIBSVM huge": ("a.svm", b"1 3000000000:1\n", "line 1: a column number is too large"),
    "LIBSVM NaN": ("a.svm", b"1 1:2\n\n1 3:nan\n", "a.svm: line 3: column 3 is nan: numbers must be finite"),
    "LIBSVM target": ("a.svm", b"1 1:2\ninf 3:1\n", "line 2: the target is inf"),
    "LIBSVM comments": ("a.svm", b"# nothing\n\n", "it holds 0 rows"),
    "LIBSVM cut off": ("a.svm.gz", gzip.compress(b"1 1:2\n" * 9999)[:-12], "a.svm.gz cannot be read: .*ended before"),
    "NumPy cut off": ("a.npy", MATRIX[:-50], "a.npy cannot be read as a .npy file: it is cut off"),
    "no NumPy": ("a.npy", b"x,y\n1,2\n", "a.npy cannot be read: it is not a .npy file"),
    "no zip": ("a.npz", b"x,y\n1,2\n", "a.npz cannot be read: it is not a .npz file"),
    "unknown": ("a.pdf", b"x", "must end in one of .parquet, .*got 'a.pdf'"),
    "packed Parquet": ("a.parquet.gz", b"x", r"text also in .gz or .bz2\), got 'a.parquet.gz'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_named_with_the_place(tmp_path, case, monkeypatch):
    monkeypatch.setattr("ksparse.sources.readers.CSV_BLOCK", 1 << 14)
    name, content, message = HOSTILE[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_files(tmp_path / name).load()
    assert "\n" not in str(caught.value)


def test_harmless_oddities_of_text(tmp_path, monkeypatch):
    monkeypatch.setattr("ksparse.sources.readers.CSV_BLOCK", 1 << 14)
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf\r\n"a, in m", b ,y\r\n1, 2.5 ,3\r\n\r\n"4",+5e0,6\r\n\r\n\r\n')
    source = open_files(tmp_path / "a.csv")
    assert source.names == ["a, in m", "b"]
    np.testing.assert_array_equal(source.load(), [[1, 2.5], [4, 5]])
    (tmp_path / "late.csv").write_bytes(LONG + b"1.5,2,1e3\n")  # whole numbers become others far behind
    assert open_files(tmp_path / "late.csv").y[-1] == 1000
    (tmp_path / "wide.csv").write_text(",".join(f"c{j}" for j in range(3000)) + "\n" + ",".join(["1.25"] * 3000) + "\n")
    assert open_files(tmp_path / "wide.csv").shape == (1, 2999)


def test_long_fields_are_read(tmp_path):
    """The csv module takes 131,072 characters by default, for all who use it: that stays as it is."""
    long, path = "a" * 131_073, tmp_path / "a.csv"
    path.write_text(f"{long},t,y\n1,{long},3\n2,u,4\n")
    before = csv.field_size_limit()
    source = open_files(path)
    assert source.names == [long, f"t={long}", "t=u"]
    np.testing.assert_array_equal(dense(source), [[1, 1, 0], [2, 0, 1]])
    path.write_text(f"b,t,y\n1,{long},3\n,u,4\n")  # the place of what is missing is found behind a long field
    with pytest.raises(ValueError, match=r"row 1 \(line 3\), column 'b' is missing"):
        open_files(path).load()
    assert csv.field_size_limit() == before


def test_npz_files_compressed_in_an_unknown_way(tmp_path):
    """Another number in the place of the compression method, in both headers of every member."""
    path = tmp_path / "a.npz"
    np.savez(path, A=np.ones((3, 2)), y=np.ones(3))
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = content.find(mark)
        while start >= 0:
            content[start + at] = 77
            start = content.find(mark, start + 1)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"a\.npz cannot be read"):
        open_files(path)


def test_npy_files_with_a_damaged_header(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    content = (tmp_path / "a.npy").read_bytes()
    at = content.index(b"fortran")
    for part in (b"[[[[[[", b"}}", b"99999", b"\\"):
        (tmp_path / "a.npy").write_bytes(content[:at] + part + content[at + len(part) :])
        with pytest.raises(ValueError, match=r"a\.npy cannot be read"):
            open_files(tmp_path / "a.npy", target=1).load()


def test_arrow_files_with_a_damaged_size(tmp_path):
    feather.write_feather(pa.table({"x": np.zeros(1000), "y": np.arange(1000.0)}), tmp_path / "a.arrow")
    content, size = (tmp_path / "a.arrow").read_bytes(), np.int64(8000).tobytes()  # of a packed column
    (tmp_path / "a.arrow").write_bytes(
        content[: content.rindex(size)] + np.int64(2**50).tobytes() + content[content.rindex(size) + 8 :]
    )
    with pytest.raises(ValueError, match=r"a\.arrow cannot be read: it is damaged"):
        open_files(tmp_path / "a.arrow").load()


COLOURS = pa.table({"c": ["reddish", "blueish", "greenish"] * 5, "y": [1.0, 2.0, 3.0] * 5})


@pytest.mark.parametrize("offset", [2**31 - 1, -5_000_000])
def test_arrow_files_with_places_outside_of_their_texts(tmp_path, offset):
    with pa.ipc.new_file(tmp_path / "a.arrow", COLOURS.schema) as writer:
        writer.write_table(COLOURS)
    content = (tmp_path / "a.arrow").read_bytes()
    at = content.index(np.array([0, 7, 14, 22], dtype="<i4").tobytes())
    (tmp_path / "a.arrow").write_bytes(content[: at + 8] + np.int32(offset).tobytes() + content[at + 12 :])
    with pytest.raises(subprocess.CalledProcessError) as caught:  # the whole process would die
        python("from ksparse.sources import open_files", f"open_files({str(tmp_path / 'a.arrow')!r})")
    assert caught.value.returncode == 1
    assert b"ValueError: a.arrow cannot be read: it is damaged" in caught.value.stderr


@pytest.mark.parametrize("index", [7, 2**30])
def test_arrow_files_with_places_outside_of_a_dictionary(tmp_path, index):
    table = COLOURS.set_column(0, "c", COLOURS["c"].combine_chunks().dictionary_encode())
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    content = (tmp_path / "a.arrow").read_bytes()
    at = content.index(np.array([0, 1, 2, 0, 1, 2], dtype="<i4").tobytes())
    (tmp_path / "a.arrow").write_bytes(content[: at + 8] + np.int32(index).tobytes() + content[at + 12 :])
    with pytest.raises(ValueError, match=r"a.arrow cannot be read: it is damaged"):
        open_files(tmp_path / "a.arrow")


def test_a_stream_without_its_end_is_noted(tmp_path):
    path = write(tmp_path / "stream.arrow")
    assert open_files(path).notes == []
    path.write_bytes(path.read_bytes()[:-8])
    assert "stream.arrow: the stream has no end mark" in open_files(path).notes[0]


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "f.csv")
    with pytest.raises(ValueError, match=r"f.csv cannot be read: it is a pipe.*give - for the path"):
        open_files(tmp_path / "f.csv")
    with pytest.raises(ValueError, match="zero cannot be read: it is not a plain file"):
        open_files("/dev/zero", format="csv")
    read, written = os.pipe()
    with pytest.raises(ValueError, match=f"{read} cannot be read: it is a pipe"):
        open_files(f"/dev/fd/{read}", format="csv")
    os.close(read)
    os.close(written)
    os.mkfifo(tmp_path / "t.npy")
    with pytest.raises(ValueError, match=r"t.npy cannot be read: it is a pipe"):
        open_files(write(tmp_path / "a.npy"), target=tmp_path / "t.npy")


def test_nothing_of_a_folder_is_left_out_silently(tmp_path):
    write_plain(tmp_path / "a.csv")
    (tmp_path / "plots").mkdir()
    assert open_files(tmp_path, format="csv").shape == (1, 1)
    for make, message in (
        (lambda path: path.symlink_to(tmp_path / "nowhere"), "b.csv cannot be read: No such file"),
        (os.mkfifo, "b.csv cannot be read: it is a pipe"),
        (os.mkdir, "b.csv cannot be read: it is a folder"),
    ):
        make(tmp_path / "b.csv")
        with pytest.raises(ValueError, match=message):
            open_files(tmp_path)
        (os.rmdir if make is os.mkdir else os.unlink)(tmp_path / "b.csv")


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_a_name_that_is_not_utf8(tmp_path, ending):
    write(tmp_path / f"a.{ending}").rename(tmp_path / os.fsdecode(b"caf\xe9." + ending.encode()))
    with pytest.raises(ValueError, match="its path is not in UTF-8; rename it") as caught:
        open_files(tmp_path)
    assert str(caught.value).encode().startswith("caf\ufffd".encode())


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [
        (["57%", "8%", "7%"] * 10, True),
        (["1,037", "-3,5", "12"] * 10, True),
        ([f"w{i}" for i in range(30)], True),
        ([f"w{i}" for i in range(15)] * 2, False),
        (["red", "blue", "5%"] * 10, False),
    ],
)
def test_text_that_may_be_no_category_is_noted(tmp_path, values, is_noted):
    pd.DataFrame({"a": values, "y": range(30)}).to_csv(tmp_path / "a.csv", index=False)
    notes = open_files(tmp_path / "a.csv").notes
    assert len(notes) == is_noted
    if is_noted:
        assert f"a.csv: column 'a' is text, such as {min(values)!r}: its {len(set(values))} different" in notes[0]
    assert open_files(tmp_path / "a.csv", categories=["a"]).notes == []


TIMES = pd.to_datetime(["2020-01-01", "2021-01-01"])
NO_TARGETS = {
    "question mark": (["1", "?"], r"'\?' stands in row 1.*, column 'y' \(the target\), which must hold numbers"),
    "text": (["r", "s"], "'r' stands in row 0.*, column 'y'"),
    "a gap": ([1.0, None], "row 1.*, column 'y' .the target. is missing; the targets"),
    "a date": (TIMES, "'2020-01-01' stands in row 0|column 'y' .the target. holds timestamp"),
    "bytes": ([b"1", b"\xff"], "stands in row 0|column 'y' .the target. holds binary"),
    "a list": ([[1.0], [2.0]], "'.1.0.' stands in row 0|column 'y' .the target. holds list"),
}


@pytest.mark.parametrize("name", ["b.csv", "b.parquet"])
@pytest.mark.parametrize("case", NO_TARGETS)
def test_targets_that_are_none_cost_the_score_only(tmp_path, name, case):
    values, message = NO_TARGETS[case]
    encoding = open_files(write_plain(tmp_path / "a.csv")).encoding
    frame = pd.DataFrame({"a": [3, 4], "y": values})
    frame.to_csv(tmp_path / name, index=False) if name == "b.csv" else frame.to_parquet(tmp_path / name)
    source = Files.like(tmp_path / name, encoding)
    assert source.y is None
    np.testing.assert_array_equal(source.load(), [[3], [4]])
    (note,) = source.notes
    assert re.search(f"{name}: .*{message}.*no score", note)
    with pytest.raises(ValueError, match=f"{name}"):
        Files.like(tmp_path / name, encoding, target_optional=False).load()


def test_a_list_is_no_label(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n1,red\n2,blue\n")
    pd.DataFrame({"a": [3], "y": [["red"]]}).to_parquet(tmp_path / "b.parquet")
    source = Files.like(tmp_path / "b.parquet", open_files(tmp_path / "a.csv").encoding)
    assert source.y is None
    assert "column 'y' (the target) holds list" in source.notes[0]


def test_targets_of_another_file_are_the_same_numbers(tmp_path):
    encoding = open_files(write(tmp_path / "a.csv")).encoding
    np.testing.assert_array_equal(Files.like(tmp_path / "a.csv", encoding).y, open_files(tmp_path / "a.csv").y)
    (tmp_path / "b.csv").write_text(",".join([*NAMES, "y"]) + "\n" + "1," * 7 + " 2.5 \n" + "1," * 7 + "+4e1\n")
    assert Files.like(tmp_path / "b.csv", encoding).y.tolist() == [2.5, 40]


@pytest.mark.parametrize("kind", ["parquet", "csv", "feather"])
def test_folders_tell_columns(tmp_path, kind):
    """As Spark, Dask and pyarrow write a table: against pyarrow's own reader."""
    rng = np.random.default_rng(0)
    n = 60
    table = pa.table(
        {
            "a": rng.standard_normal(n), "size": rng.standard_normal(n), "year": np.repeat([2020, 2021], n // 2),
            "place name": ["Köln", "A/B", None] * (n // 3), "code": ["01", "02"] * (n // 2),
            "y": rng.standard_normal(n),
        }
    )  # fmt: skip
    keys = pa.schema([(name, table.schema.field(name).type) for name in ("year", "place name", "code")])
    ds.write_dataset(table, tmp_path / "t", format=kind, partitioning=ds.partitioning(keys, flavor="hive"))
    (tmp_path / "t" / "_SUCCESS").touch()
    with pytest.raises(ValueError, match=r"_PARTITION__/.*the value in .*, column 'place name' is missing"):
        open_files(tmp_path / "t", target="y").load()
    source = open_files(tmp_path / "t", target="y", missing="zero", categories=["code"])
    assert source.names == ["year", "place name=A/B", "place name=Köln", "code=01", "code=02", "a", "size"]
    assert open_files(tmp_path / "t", missing="zero").target == "y"
    whole = source.load()
    found = {tuple(row) for row in np.column_stack([whole, source.y])}
    for row in table.to_pylist():
        place = [float(row["place name"] == name) for name in ("A/B", "Köln")]
        code = [float(row["code"] == name) for name in ("01", "02")]
        assert (row["year"], *place, *code, row["a"], row["size"], row["y"]) in found
    # a model that knows the codes as text is given text, also where those that are there look like numbers
    shutil.rmtree(tmp_path / "t" / "year=2020")
    other = Files.like(tmp_path / "t", source.encoding)
    np.testing.assert_array_equal(other.load(), whole[n // 2 :])
    only = open_files(tmp_path / "t", target="y", columns=["year"])
    np.testing.assert_array_equal(only.load(), np.full((n // 2, 1), 2021.0))


def test_folders_that_tell_what_they_should_not(tmp_path):
    inside = tmp_path / "t" / "year=2020"
    inside.mkdir(parents=True)
    (inside / "a.csv").write_text("x,year,y\n1,2,3\n")
    with pytest.raises(ValueError, match=r"year=2020/a.csv cannot be read: the column 'year' is in the file and in"):
        open_files(tmp_path / "t")
    (inside / "a.csv").write_text("x,y\n1,2\noops,3\n4,5\n")
    with pytest.raises(ValueError, match=r"year=2020/a.csv cannot be read: 'oops' stands in row 1 \(line 3\)"):
        open_files(tmp_path / "t")
    (inside / "a.csv").write_text("x,y\n1,2\n")
    assert open_files(tmp_path / "t").names == ["year", "x"]
    (tmp_path / "t" / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"b.csv has no column 'year', but year=2020/a.csv has"):
        open_files(tmp_path / "t")
    other = tmp_path / "s" / "fold=1"
    other.mkdir(parents=True)
    (other / "a.svm").write_text("1 1:2\n")
    with pytest.raises(
        ValueError, match=r"fold=1/a.svm cannot be read: folders like year=2020 give columns of tables only"
    ):
        open_files(tmp_path / "s")


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="holds no file that ends in one of"):
        open_files(tmp_path)
    with pytest.raises(ValueError, match="is not there: give a file"):
        open_files(tmp_path / "nowhere.csv")
    (tmp_path / "a.csv").write_text("a,y\n1,2\n")
    for text, message in (
        ("a,z\n1,2\n", "b.csv has no column 'y', but a.csv has"),
        ("a,y\nred,2\n", r"'a' holds numbers in a.csv, but text in b.csv.*categories=\['a'\]"),
        ("a,y\n3\n", r"b.csv cannot be read: row 0 \(line 2\)"),
        ("", "b.csv cannot be read: it is empty"),
    ):
        (tmp_path / "b.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            open_files(tmp_path)
    (tmp_path / "b.svm").write_text("1 1:1\n")
    with pytest.raises(ValueError, match=r"several formats \(csv, libsvm\)"):
        open_files(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "z"}, "target: there is no column 'z' in a.csv; there are 'c0', 'c1'"),
        ({"target": 3}, "target must be the name of a column, got 3"),
        ({"drop": ["C1"]}, r"drop: there is no column 'C1' in a.csv \(there is 'c1'\)"),
        ({"columns": "c1"}, "columns must be a list of names, got 'c1'"),
        ({"columns": ["c1", "c1"]}, "columns must name each column once"),
        ({"columns": ["y"]}, "no column is left beside the target"),
        ({"drop": ["y"], "target": "y"}, "drop must not name the target"),
        ({"missing": "drop"}, "missing must be one of 'error', 'mean', 'zero', got 'drop'"),
        ({"format": "excel"}, "format must be one of 'parquet', .*got 'excel'"),
        ({"delimiter": ""}, "delimiter must be one character"),
        ({"delimiter": "é"}, "delimiter must be one character of ASCII"),
        ({"columns": 5}, "columns must be a list of names, got 5"),
        ({"na": [None]}, "na must be a list of names"),
        ({"zero_based": 2}, "zero_based must be True or False"),
        ({"cache": "/nowhere/at/all"}, "cache must be True, False or a folder that is there"),
        ({"memory": "much"}, "memory must be"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        open_files(write(tmp_path / "a.csv"), **arguments)


def test_arguments_for_tables_only(tmp_path):
    for arguments in ({"missing": "mean"}, {"drop": ["x0"]}, {"delimiter": ";"}):
        with pytest.raises(ValueError, match="is for files with named columns"):
            open_files(write(tmp_path / "a.svm"), **arguments)
    with pytest.raises(ValueError, match=r"target is for files with names of columns, a.npz has its own"):
        open_files(write(tmp_path / "a.npz"), target="y")
    with pytest.raises(ValueError, match=r"target must be a column between 0 and 7 of a.npy, got 9"):
        open_files(write(tmp_path / "a.npy"), target=9)


@pytest.mark.parametrize("name", ["a.parquet", "a.npy", "a.feather"])
def test_a_file_that_changes_is_noticed(tmp_path, name):
    source = open_files(write(tmp_path / name))
    source.load()
    os.utime(tmp_path / name, ns=(1, 1))
    with pytest.raises(ValueError, match=f"{name} has changed since it was opened"):
        source.load()


def test_without_pyarrow_a_hint(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'ksparse\[files\]'"):
        open_files(write_plain(tmp_path / "a.csv"))


def write_plain(path):
    path.write_text("a,y\n1,2\n")
    return path


# --- pipes, spools and memory ----------------------------------------------------------------------------------------
def python(*lines, stdin=None, **settings):
    code = "\n".join(lines)
    return subprocess.run([sys.executable, "-c", code], input=stdin, capture_output=True, check=True, **settings).stdout


@pytest.mark.parametrize(("name", "format"), [("a.csv", "csv"), ("a.svm", "libsvm"), ("stream.arrow", "arrow")])
def test_a_pipe_can_be_read_again(tmp_path, name, format):
    content = write(tmp_path / name).read_bytes()
    out = python(
        "from ksparse.sources import open_files",
        f"source = open_files('-', format={format!r}, memory='1MB')",
        "print(source.shape, source.load().sum(), source.load().sum(), source.y.sum())",
        stdin=content,
    )
    expected = open_files(tmp_path / name)
    once = expected.load().sum()
    assert out.decode() == f"(300, 7) {once} {once} {expected.y.sum()}\n"


def test_a_pipe_needs_its_format(monkeypatch):
    with pytest.raises(ValueError, match="format must be given to read the standard input, one of 'csv'"):
        open_files("-")

    monkeypatch.setattr(sys, "stdin", io.BytesIO())
    with pytest.raises(ValueError, match="the standard input cannot be read: it is empty"):
        open_files("-", format="arrow")

    class Stdin:
        buffer = io.BytesIO(b"a,y\n1,2\n3\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    with pytest.raises(ValueError, match=r"the standard input cannot be read: row 1 \(line 3\) has 1 values"):
        open_files("-", format="csv")


def test_text_is_parsed_once(tmp_path, monkeypatch):
    from ksparse.sources.readers import CsvReader

    parsed = []
    real = CsvReader.read
    monkeypatch.setattr(CsvReader, "read", lambda part, *a: parsed.append(a) or real(part, *a))
    path = write(tmp_path / "a.csv")
    kept = open_files(path)
    kept.load()
    assert len(parsed) == 1
    path.unlink()  # not needed any more
    np.testing.assert_allclose(kept.load(), ROWS)
    again = open_files(write(path), cache=False)
    again.load()
    assert len(parsed) == 3


def test_large_spools_are_files_without_a_name(tmp_path, monkeypatch):
    shelves = []
    real = storage.ScratchFile.__init__
    monkeypatch.setattr(storage.ScratchFile, "__init__", lambda s, folder=None: shelves.append(s) or real(s, folder))
    numbers = RNG.standard_normal((40_000, 5))
    pd.DataFrame(numbers, columns=list("abcde")).to_csv(tmp_path / "a.csv", index=False, float_format="%.17g")
    source = open_files(tmp_path / "a.csv", memory="1MB", cache=tmp_path)
    assert len(shelves) == 1
    assert shelves[0].size > numbers.nbytes
    assert os.listdir(tmp_path) == ["a.csv"]
    np.testing.assert_array_equal(source.load(), numbers[:, :4])
    with source:
        pass
    assert shelves[0]._file.closed
    with pytest.raises(ValueError, match="these files have been closed"):
        source.load()


def test_a_kill_leaves_nothing_behind(tmp_path):
    numbers = np.tile(ROWS, (100, 1))
    pd.DataFrame(numbers, columns=NAMES).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "spool").mkdir()
    lines = (
        "import time",
        "from ksparse.sources import open_files",
        f"source = open_files({str(tmp_path / 'a.csv')!r}, memory='1MB', cache={str(tmp_path / 'spool')!r})",
        "print(source._spool._scratch.size, flush=True)",
        "time.sleep(60)",
    )
    with subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE) as child:
        assert int(child.stdout.readline()) > numbers.nbytes // 2
        child.send_signal(signal.SIGKILL)
    assert os.listdir(tmp_path / "spool") == []


def test_columns_whose_pages_do_not_fit_are_read_in_groups(tmp_path):
    wide = {f"c{j}": RNG.standard_normal(2000) for j in range(150)}
    wide["text"] = pa.array(["u", "v"] * 1000).dictionary_encode()
    pq.write_table(pa.table(wide), tmp_path / "a.parquet")
    source = open_files(tmp_path / "a.parquet", target="c7", memory="1MB")
    assert len(source._rows.readers[0]._groups) > 3
    expected = np.column_stack([*(wide[f"c{j}"] for j in range(150) if j != 7), [1, 0] * 1000, [0, 1] * 1000])
    np.testing.assert_array_equal(source.load(), expected)
    np.testing.assert_array_equal(source.y, wide["c7"])
    some = np.array([3, 100, 150])
    np.testing.assert_array_equal(np.concatenate([b.copy() for b in source.blocks(some)]), expected[:, some])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_one_huge_row_group_stays_out_of_memory(tmp_path, name):
    columns = {f"c{j}": np.arange(600_000.0) + j for j in range(50)}  # 240 MB
    table = pa.table(columns)
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name, row_group_size=600_000, compression="none", use_dictionary=False)
    else:
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    out = python(
        "import resource",
        "from ksparse.sources import open_files",
        f"source = open_files({str(tmp_path / name)!r}, target=False, memory='256MB')",
        "next(source.blocks())",  # kernels are loaded
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
        "total = sum(source.map(lambda block: float(block.sum())))",
        "print(total, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)",
    )
    total, grown = map(float, out.split())
    assert total == pytest.approx(sum(column.sum() for column in columns.values()))
    assert grown < 120  # MB: the file is twice that


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_become_rows(dtype):
    for n in (0, 1, 7, 8, 37):
        columns = RNG.standard_normal((5, n)).astype(dtype)
        out = np.zeros((n, 8), dtype)
        spread(columns, np.array([1, 0, 7, 3, 4], dtype=np.uint64), out)
        np.testing.assert_array_equal(out[:, [1, 0, 7, 3, 4]], columns.T)
        assert not out[:, [2, 5, 6]].any()
        assert all_finite(columns.reshape(-1))
    for bad in (np.nan, np.inf, -np.inf):
        columns[3, 17] = bad
        assert not all_finite(columns.reshape(-1))


def test_reading_keeps_up_with_the_disk(tmp_path):
    """A block is whole when it is handed out: three of them take turns."""
    pq.write_table(pa.table({f"c{j}": np.arange(5000.0) for j in range(8)}), tmp_path / "a.parquet")
    source = open_files(tmp_path / "a.parquet", memory="1MB")

    def slow(block):
        before = block.copy()
        time.sleep(0.002)
        return bool((block == before).all()), block.shape[0]

    answers = list(source.map(slow))
    assert len(answers) > 4
    assert all(same for same, _ in answers)


def test_names_that_clash_with_a_category(tmp_path):
    (tmp_path / "a.csv").write_text("x,colour=red,colour,t\n1,2,red,3\n2,3,blue,4\n")
    with pytest.raises(ValueError, match=r"a\.csv: two columns would be called 'colour=red'.*drop"):
        open_files(tmp_path / "a.csv", target="t")
    assert open_files(tmp_path / "a.csv", target="t", drop=["colour"]).names == ["x", "colour=red"]


# --- rows that are kept ----------------------------------------------------------------------------------------------
def test_a_table_read_again_and_again_is_decoded_twice(tmp_path):
    rows = np.random.default_rng(0).standard_normal((300, 5))
    frame = pd.DataFrame(rows, columns=list("abcde"))
    frame.to_parquet(tmp_path / "rows.parquet")
    with open_files(tmp_path / "rows.parquet", target=False) as source:
        decoded = []
        inner = source._rows.blocks
        source._rows.blocks = lambda *which: decoded.append(which) or inner(*which)
        for _ in range(2):
            next(source.blocks())  # left at once: not a pass
        for _ in range(4):
            np.testing.assert_array_equal(source.load(), rows)
        assert len(decoded) == 3
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(np.array([1, 3])))), rows[:, [1, 3]])
        assert len(decoded) == 4  # of some columns the table is read
    with open_files(tmp_path / "rows.parquet", target=False, cache=False) as source:
        assert source._cache is None
    assert storage.free_memory() > 0
    assert not storage.has_room(1 << 60, None)
    assert not storage.has_room(1, tmp_path / "nowhere")


def test_an_encoding_must_give_the_features_of_the_model(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "b": [0.0, 1.0, 1.0, 0.0], "y": [2.0, 4.0, 6.0, 10.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = KSparseRegressor(k=1).fit(frame[["b", "a"]], frame.y)
    rows = open_files(tmp_path / "t.csv", target="y")
    with pytest.raises(ValueError, match="got 'a' for feature 0, 'b'"):
        model.save(tmp_path / "m.json", encoding=rows.encoding)
    model = KSparseRegressor(k=1).fit(rows, rows.y)
    model.save(tmp_path / "m.json", encoding=rows.encoding, target="y")
    assert load(tmp_path / "m.json").encoding_ == rows.encoding
    for old, new in (('"a"', '"c"'), ('"k": 1', '"k": "x"'), ('"l2": "auto"', '"l2": {}'), ('"table"', '"chair"')):
        text = (tmp_path / "m.json").read_text()
        assert old in text
        (tmp_path / "bad.json").write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError, match=r"bad\.json is not a model that can be read"):
            load(tmp_path / "bad.json")
