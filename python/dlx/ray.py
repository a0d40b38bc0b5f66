"""`dlx_share.ray`, where dlx-share is installed: tensors in Ray."""

import sys

from . import _door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_share.ray import *  # noqa: F403

sys.modules[__name__] = _door("share", "ray", "dlx.ray")
