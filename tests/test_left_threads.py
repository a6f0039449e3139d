"""A run that failed ends, whatever its tests have left (`left_threads.py`)."""

import subprocess
import sys

from tests.patience import PATIENCE

LEAVES = """
import threading

def test_fails_and_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, name="waits for ever").start()
    raise ValueError("the reason")
"""


def test_a_failed_run_ends_and_says_what_it_has_to(tmp_path):
    test = tmp_path / "test_leaves.py"
    test.write_text(LEAVES)
    options = ["-q", "-p", "tests.left_threads", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run([sys.executable, "-m", "pytest", *options, test], capture_output=True, text=True, check=False,
                          timeout=PATIENCE)
    assert done.returncode == 1 and "ValueError: the reason" in done.stdout and "1 failed" in done.stdout, done
    assert done.stderr.endswith("which a test has left: waits for ever\n")
