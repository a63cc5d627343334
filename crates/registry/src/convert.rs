//! Stored bytes to the version asked for, and back.
