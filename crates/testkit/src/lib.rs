//! Virtual time, two-endpoint pairs and lossy links for tests.
