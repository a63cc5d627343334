//! The configuration file, read again while the program runs.

use crate::authenticator::{IssuerSet, Oidc, Source};
use crate::config::{AuthenticationConfig, ConfigError, FILE_BYTES_MAX};
use crate::issuer::text_of;
use setpoint_object::field::{Error, Path};
use setpoint_small_file::FileChanges;
use sha2::{Digest as _, Sha256};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often the file is read even if nothing seems to have changed: every 10 s. A change is
/// noticed within a second. kube-apiserver watches it, and reads it every minute besides.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(10);

/// How long the issuers of a new configuration have to answer: a minute, as in kube-apiserver.
/// After it the configuration counts as failed and is tried again.
pub const UPDATE_MAX: Duration = Duration::from_secs(60);

/// What became of a file that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadReport {
    /// The SHA-256 of the file whose configuration was taken; an error if it cannot be used.
    pub result: Result<[u8; 32], String>,
}

/// Reads the file until the future is dropped. Ends at once without a file.
pub(crate) async fn run(oidc: &Oidc, mut source: Source, begin: mpsc::Sender<Arc<IssuerSet>>) {
    let Some(file) = source.file.clone() else { return };
    let mut changes = FileChanges::new([file.clone()], source.period);
    let mut seen = None;
    loop {
        changes.next().await;
        let result = match look(oidc, &mut source, &file, &mut seen, &begin).await {
            Ok(None) => continue,
            Ok(Some(hash)) => {
                tracing::info!(file = %file.display(), "reloaded the authentication configuration");
                Ok(hash)
            }
            Err(error) => {
                tracing::error!(
                    file = %file.display(),
                    error,
                    "the authentication configuration cannot be used: the earlier one stays"
                );
                Err(error)
            }
        };
        (source.report)(&ReloadReport { result });
    }
}

/// Takes the file's configuration if it is another one.
async fn look(
    oidc: &Oidc,
    source: &mut Source,
    file: &FilePath,
    seen: &mut Option<Vec<u8>>,
    begin: &mpsc::Sender<Arc<IssuerSet>>,
) -> Result<Option<[u8; 32]>, String> {
    let read = setpoint_small_file::read_async(file, FILE_BYTES_MAX).await;
    let document = read.map_err(|error| text_of(&ConfigError::from(error)))?;
    if seen.as_ref() == Some(&document) {
        return Ok(None);
    }
    let (config, set) = match take(source, &document) {
        Ok(Some((config, set))) => (config, Arc::new(set)),
        Ok(None) => {
            *seen = Some(document);
            return Ok(None);
        }
        Err(error) => {
            // It stays wrong, so it is reported once.
            *seen = Some(document);
            return Err(text_of(&error));
        }
    };
    // An error means that the worker has ended, which ends this too.
    _ = begin.send(set.clone()).await;
    let deadline = Instant::now() + UPDATE_MAX;
    for issuer in set.issuers() {
        issuer.keys().discovered(deadline).await.map_err(|why| {
            format!("oidc: authenticator for issuer {:?} is not healthy: {why}", issuer.url())
        })?;
    }
    oidc.replace(set, &*source.shared.observer);
    source.current = config;
    let hash = Sha256::digest(&document).into();
    *seen = Some(document);
    Ok(Some(hash))
}

/// The configuration of a document with its issuers; `None`: it is the present one.
fn take(
    source: &Source,
    document: &[u8],
) -> Result<Option<(AuthenticationConfig, IssuerSet)>, ConfigError> {
    let config = AuthenticationConfig::parse(document)?;
    if config == source.current {
        return Ok(None);
    }
    let set = source.set(&config);
    if config.anonymous == source.current.anonymous {
        return Ok(Some((config, set?)));
    }
    let changed =
        Error::forbidden(Path::new("anonymous"), "changed from initial configuration file");
    Err(match set {
        Err(ConfigError::Invalid(mut errors)) => {
            errors.push(changed);
            ConfigError::Invalid(errors)
        }
        Err(error) => error,
        Ok(_) => ConfigError::Invalid(vec![changed]),
    })
}
