"""Tests of SeaweedFS: they are made at the start, and from then on."""
