//! The certificate that a server shows, and how it is replaced while the server runs.
//!
//! # Theory
//!
//! A [`CertificateWatcher`] owns two files and reads them again every [`POLL_INTERVAL`]. A pair
//! that reads, parses and fits together becomes the [`CurrentCertificate`], which servers ask at
//! every handshake; anything else is counted and logged, and the pair before it stays. A
//! certificate and its key are two files, so between two writes they do not fit: that heals at the
//! next poll.
//!
//! What the files hold is compared, not times or names: [`setpoint_serve::certificate`] says why.

mod watcher;

pub use setpoint_serve::certificate::{
    CHAIN_MAX, Certificate, CertificateError, CertificateFiles, CurrentCertificate, FILE_BYTES_MAX,
    POLL_INTERVAL,
};
pub(crate) use watcher::Callback;
pub use watcher::CertificateWatcher;
