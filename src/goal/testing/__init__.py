"""What every method and every dataset promises, as checks for those who write one.

`check_method` and `check_dataset` hold a plug-in to it; `CHECKS` has the promises of methods one by
one, each a function of the method's name, for `pytest.mark.parametrize`. A promise that is broken
raises an `AssertionError`, one that a method has no part in a `unittest.SkipTest`.

May import: common, storage, data, protocol, backbone, methods, settings, learning.
"""

from goal.testing.datasets import check_dataset
from goal.testing.suite import CHECKS, check_method

__all__ = ["CHECKS", "check_dataset", "check_method"]
