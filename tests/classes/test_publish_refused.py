"""What `dlx.publish` and `dlx.unpublish` refuse, and leave as it was."""

from __future__ import annotations

import pytest
from support.optional_libraries import requires
from test_publish import check


def test_publish_refuses_a_type_that_has_a_table() -> None:
    """It says whose the table is."""
    check("""
        child = type("Child", (Stored,), {})
        for kind in (dlx.Tensor, dlx.ExchangeMixin, Stored, ByMethod, child):
            before = vars(kind)[NAME]
            assert "has an exchange table already" in error(dlx.publish, kind)
            assert "is its own" in error(dlx.unpublish, kind)
            assert vars(kind)[NAME] is before
        """)


def test_publish_refuses_torch() -> None:
    """Its table is its own; that of a subclass is torch's."""
    requires("torch")
    check("""
        import torch
        child = type("Child", (torch.Tensor,), {})
        assert "has an exchange table already" in error(dlx.publish, torch.Tensor)
        for kind in (torch.nn.Parameter, child):
            assert "that of torch.Tensor" in error(dlx.publish, kind)
        dlx.unpublish(child)
        assert "is its own" in error(dlx.unpublish, torch.Tensor)
        assert isinstance(echo(torch.zeros(2)), torch.Tensor)
        """)


def test_publish_refuses_a_type_without_the_protocol() -> None:
    """It says what is missing, and leaves the type alone."""
    check("""
        for kind in (int, list, object, type, bytearray, plain_class()):
            assert "has no __dlpack__" in error(dlx.publish, kind)
            assert not hasattr(kind, NAME)
            dlx.unpublish(kind)
        """)


@pytest.mark.parametrize("attribute", ["5", "'text'", "None", "property(id)"])
def test_publish_leaves_an_attribute_of_somebody_elses_alone(attribute: str) -> None:
    """A class that uses the name, whatever for, has said what it wants."""
    check(f"""
        Own.__dlpack_c_exchange_api__ = attribute = {attribute}
        assert "Own" in error(dlx.publish, Own)
        assert "Own" in error(dlx.unpublish, Own)
        assert vars(Own)[NAME] is attribute
        """)


def test_a_metaclass_that_refuses_attributes_is_a_type_error_or_honoured() -> None:
    """Nothing is set half."""
    check("""
        class Sealed(type):
            def __setattr__(cls, name, value):
                raise TypeError("sealed")
        kind = Sealed("Kind", (Own,), {})
        assert "sealed" in error(dlx.publish, kind)
        assert NAME not in vars(kind)
        """)
