"""`make asan` leaves out tests by name: a test that has another name by now would not be left out."""

import pytest

from tests.builds.sanitizer import LEFT_OUT
from tests.layers import ROOT


@pytest.mark.parametrize("name", [name for names in LEFT_OUT.values() for name in names])
def test_what_is_left_out_is_there(name):
    path, _, test = name.partition("::")
    test = test.partition("[")[0]
    assert f"def {test}" in (ROOT / path).read_text() if test else (ROOT / path).is_file()
