"""The examples of docs/spark.md run."""

from tests import test_docs


def test_the_page_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = test_docs.SPARK.read_text().replace("spark.stop()\n", "")        # the session is that of all tests
    page = tmp_path / "spark.md"
    page.write_text(text)
    failures = test_docs.run_page(page)
    assert not failures, failures
