"""Tests of `dlx_check.conformance`, the conformance suite."""
