//! A controller that gives Network objects real networks.
