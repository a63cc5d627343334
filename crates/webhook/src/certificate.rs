//! The server's certificate, and its replacement while the server runs.
//!
//! # Theory
//!
//! A [`CertificateWatcher`] reads two files every [`POLL_INTERVAL`]. A certificate and key that can
//! be read and that match become the [`CurrentCertificate`], which servers use at every handshake.
//! Anything else is counted and logged, and the previous pair remains in use. Certificate and key
//! are separate files, so they do not match between two writes; the next poll resolves that.
//!
//! The watcher compares the content of the files, not times or names;
//! [`setpoint_serve::certificate`] explains why.

mod watcher;

pub use setpoint_serve::certificate::{
    CHAIN_MAX, Certificate, CertificateError, CertificateFiles, CurrentCertificate, FILE_BYTES_MAX,
    POLL_INTERVAL,
};
pub(crate) use watcher::Callback;
pub use watcher::CertificateWatcher;
