"""`dlx_share.mp`, where dlx-share is installed: tensors in `multiprocessing`."""

import sys

from . import _door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_share.mp import *  # noqa: F403

sys.modules[__name__] = _door("share", "mp", "dlx.mp")
