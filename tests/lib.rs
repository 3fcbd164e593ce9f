//! The package of the integration tests; it has no library code.
