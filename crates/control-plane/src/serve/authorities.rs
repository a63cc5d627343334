//! Authorities of client certificates in files, read again while the server runs; and what a server
//! publishes about them.

use super::ServeError;
use crate::reload::{RELOAD_PERIOD, Reloads};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_apiserver::listen::{CertificateError, read_chain, read_file, read_file_async};
use setpoint_apiserver::{AuthorityError, ClientAuthorities, RequestHeaderNames};
use setpoint_object::error::chain;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What extension servers read in the ConfigMap `kube-system/extension-apiserver-authentication`.
pub(crate) type PublishedAuthentication = Arc<Mutex<BTreeMap<String, String>>>;

/// Why a front proxy cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontProxyError {
    /// An empty value.
    #[error("empty value in {0:?}")]
    Empty(&'static str),
    /// The standard header is missing.
    #[error(
        "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
    )]
    NoStandardUid,
    /// Users could name other users.
    #[error(
        "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
    )]
    Overlap,
}

/// One set of authorities, from a file and from the server itself.
#[derive(Debug)]
pub(super) struct FollowedAuthorities {
    /// The key of the published ConfigMap.
    key: &'static str,
    /// `None`: only `own`.
    file: Option<PathBuf>,
    /// PEM of the authority that is always there; may be empty.
    own: String,
    pub(super) current: ClientAuthorities,
}

impl FollowedAuthorities {
    /// Reads them for the first time. Returns them with their PEM.
    pub(super) fn open(
        key: &'static str,
        file: Option<PathBuf>,
        own: String,
    ) -> Result<(Self, String), ServeError> {
        let failed = |source| match &file {
            Some(path) => ServeError::AuthorityFile { path: path.clone(), source },
            None => ServeError::Certificate(source),
        };
        let text = file.as_deref().map(read_file).transpose().map_err(failed)?;
        let pem = joined(&own, text.as_deref()).map_err(failed)?;
        let certificates = read_chain(pem.as_bytes()).map_err(failed)?;
        let current = ClientAuthorities::new(certificates).map_err(ServeError::Authorities)?;
        Ok((Self { key, file, own, current }, pem))
    }

    /// Reads them again. Returns their PEM if they have changed.
    async fn poll(&self) -> Result<Option<String>, PollError> {
        let text = match &self.file {
            Some(file) => Some(read_file_async(file).await?),
            None => None,
        };
        let pem = joined(&self.own, text.as_deref())?;
        let is_changed = self.current.set(read_chain(pem.as_bytes())?)?;
        Ok(is_changed.then_some(pem))
    }
}

#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Read(#[from] CertificateError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// The server's own authority and those of a file.
fn joined(own: &str, text: Option<&[u8]>) -> Result<String, CertificateError> {
    let mut pem = own.to_owned();
    if let Some(text) = text {
        if !pem.is_empty() && !pem.ends_with('\n') {
            pem.push('\n');
        }
        // By itself: an empty file is an error.
        pem.push_str(&pem_of(&read_chain(text)?));
    }
    Ok(pem)
}

/// Certificates in PEM. What else was in their file is not published: it may be the key.
pub(super) fn pem_of(chain: &[impl AsRef<[u8]>]) -> String {
    let mut pem = String::new();
    for certificate in chain {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        let mut rest = &*encoded;
        while !rest.is_empty() {
            // 64 characters a line, as RFC 7468 has it.
            let (line, more) = rest.split_at(rest.len().min(64));
            pem.extend([line, "\n"]);
            rest = more;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

/// Follows the files of all authorities.
#[derive(Debug)]
pub(super) struct AuthorityFiles {
    pub(super) followed: Vec<FollowedAuthorities>,
    pub(super) published: PublishedAuthentication,
}

impl AuthorityFiles {
    /// Whether there are files to follow.
    pub(super) fn has_files(&self) -> bool {
        self.followed.iter().any(|authorities| authorities.file.is_some())
    }

    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let files = self.followed.iter().filter_map(|authorities| authorities.file.clone());
        let mut reloads = Reloads::of(files, RELOAD_PERIOD);
        while reloads.next(&stop).await {
            for authorities in self.followed.iter().filter(|one| one.file.is_some()) {
                let file = authorities.file.as_ref().map(|file| file.display().to_string());
                let polled = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    // Cancel safe: authorities are replaced at the end, in one step.
                    polled = authorities.poll() => polled,
                };
                match polled {
                    Ok(None) => {}
                    Ok(Some(pem)) => {
                        self.published.lock().insert(authorities.key.to_owned(), pem);
                        tracing::info!(file, "other authorities of client certificates are in use");
                    }
                    Err(error) => tracing::error!(
                        file,
                        error = chain(&error),
                        "the authorities of client certificates cannot be read: those in use stay"
                    ),
                }
            }
        }
    }
}

/// Checks the names of a front proxy, as kube-apiserver does.
///
/// # Errors
///
/// A value is empty, or the standard header is missing.
pub(super) fn check_names(names: &RequestHeaderNames) -> Result<(), FrontProxyError> {
    let lists = [
        ("requestheader-username-headers", &names.username_headers),
        ("requestheader-group-headers", &names.group_headers),
        ("requestheader-extra-headers-prefix", &names.extra_headers_prefix),
        ("requestheader-allowed-names", &names.allowed_names),
        ("requestheader-uid-headers", &names.uid_headers),
    ];
    for (flag, values) in lists {
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(FrontProxyError::Empty(flag));
        }
    }
    let has = |values: &[String], name: &str| {
        values.is_empty() || values.iter().any(|value| value.eq_ignore_ascii_case(name))
    };
    if !has(&names.uid_headers, "X-Remote-Uid") {
        return Err(FrontProxyError::NoStandardUid);
    }
    for (values, flag, standard) in [
        (&names.username_headers, "--requestheader-username-headers", "X-Remote-User"),
        (&names.group_headers, "--requestheader-group-headers", "X-Remote-Group"),
        (&names.extra_headers_prefix, "--requestheader-extra-headers-prefix", "X-Remote-Extra-"),
    ] {
        if !has(values, standard) {
            tracing::warn!("{flag} lacks the standard {standard}: API aggregation will not work");
        }
    }
    Ok(())
}

/// The members of the ConfigMap that name the headers: JSON arrays.
pub(super) fn published_names(names: &RequestHeaderNames) -> BTreeMap<String, String> {
    let list = |values: &[String]| Value::from(values.to_vec()).to_string();
    let mut members = BTreeMap::from([
        ("requestheader-allowed-names".to_owned(), list(&names.allowed_names)),
        ("requestheader-username-headers".to_owned(), list(&names.username_headers)),
        ("requestheader-group-headers".to_owned(), list(&names.group_headers)),
        ("requestheader-extra-headers-prefix".to_owned(), list(&names.extra_headers_prefix)),
    ]);
    if !names.uid_headers.is_empty() {
        members.insert("requestheader-uid-headers".to_owned(), list(&names.uid_headers));
    }
    members
}
