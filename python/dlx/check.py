"""`dlx_check.conformance`, where dlx-check is installed: a suite for DLPack."""

import sys

from . import _door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_check.conformance import *  # noqa: F403

sys.modules[__name__] = _door("check", "conformance", "dlx.check")
