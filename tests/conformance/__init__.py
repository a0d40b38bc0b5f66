"""Tests of `dlx.check`, the conformance suite."""
