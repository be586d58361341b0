"""Parquet is read back by pandas and DuckDB, and says what the CSV says."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from ddpmon.messages import PHASES
from tests.in_process import called


def test_pandas_reads_the_rows_of_the_csv(demo, tmp_path):
    import pandas as pd

    file = tmp_path / "run.parquet"
    assert called("export", "--format", "parquet", "--last", "100", "-o", str(file)).returncode == 0
    frame = pd.read_parquet(file)
    rows = list(csv.DictReader(io.StringIO(called("export", "--format", "csv", "--last", "100").stdout)))
    assert len(frame) == len(rows) == 400
    assert list(frame.columns) == list(rows[0])
    for name in ("step", "rank", "critical", "samples"):
        assert [int(row[name]) for row in rows] == list(frame[name])
    for name in ("end_unix_s", "length_ms", "loss", "gc_ms", *(f"{phase}_ms" for phase in PHASES)):
        assert [float(row[name]) for row in rows] == pytest.approx(list(frame[name]), abs=6e-4)
    assert frame["tokens"].isna().all()
    assert frame["named_ms"].isna().all()


def test_duckdb_finds_who_was_waited_for(demo, tmp_path):
    import duckdb

    file = tmp_path / "run.parquet"
    called("export", "--format", "parquet", "-o", str(file))
    with duckdb.connect() as db:
        waited_for = db.execute(
            "SELECT rank, count(*) FROM read_parquet(?) WHERE critical = 1 AND step BETWEEN 460 AND 790 "
            "GROUP BY rank ORDER BY 2 DESC LIMIT 1",
            [str(file)],
        ).fetchone()
        assert waited_for == (2, 331)
        assert db.execute("SELECT count(*) FROM read_parquet(?)", [str(file)]).fetchone() == (4 * 1248,)


def test_what_a_script_named_is_a_map(tmp_path, monkeypatch):
    import duckdb

    from ddpmon.export import rows
    from ddpmon.export.rows import NAMED, ROW_COLUMNS

    row = tuple({"augment": 1.5, "résumé": 2.0} if name == NAMED else 1 for name in ROW_COLUMNS)
    monkeypatch.setattr(rows, "rows", lambda _pieces, _clock: iter([row, (*row[:-1], None)]))
    rows.write_parquet([], None, tmp_path / "named.parquet")
    with duckdb.connect() as db:
        named = db.execute("SELECT named_ms FROM read_parquet(?)", [str(tmp_path / "named.parquet")]).fetchall()
    assert named == [({"augment": 1.5, "résumé": 2.0},), (None,)]


def test_it_goes_into_a_file_that_is_there_whole_or_not_at_all(demo, tmp_path, monkeypatch):
    refused = called("export", "--format", "parquet")
    assert (refused.returncode, refused.stderr) == (
        2,
        "ddpmon: --format parquet needs --output FILE\n",
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = called("export", "--format", "parquet", "-o", str(tmp_path / "run.parquet"))
    assert refused.returncode == 2
    assert "pip install 'ddpmon[parquet]'" in refused.stderr
    assert not list(tmp_path.iterdir())
