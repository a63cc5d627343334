//! The keys of service account tokens: from files, or in the certificate folder.

use super::{ServeError, ServeOptions, cert_dir};
use setpoint_apiserver::listen::{CertificateError, read_file};
use setpoint_registry::ServiceAccountTokens;
use setpoint_registry::jwt::{KeyError, KeySet, SigningKey, VerifyingKey};
use std::path::{Path, PathBuf};

/// Why the keys of service account tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SigningKeyError {
    /// A file cannot be read.
    #[error("read a key of service account tokens")]
    Read(#[from] CertificateError),
    /// A file has no key that can be used.
    #[error("use the key in {}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KeyError,
    },
    /// A key to sign with cannot be made.
    #[error("make a key for service account tokens")]
    Make(#[source] KeyError),
}

/// Sets the keys that the options name. Without any, the keys stay as they are: those of the
/// embedder, or one that is made for this run.
pub(super) fn open(
    options: &ServeOptions,
    tokens: &ServiceAccountTokens,
) -> Result<(), ServeError> {
    let ring = tokens.key_ring();
    let signing = match (&options.signing_key_file, &options.cert_dir) {
        (Some(path), _) => Some(read(path, SigningKey::from_pem)?),
        (None, Some(folder)) if !ring.is_set() => {
            let pem = cert_dir::signing_key(folder)?;
            let key = SigningKey::from_pem(pem.as_bytes());
            let path = folder.join(cert_dir::SIGNING_KEY);
            Some(key.map_err(|source| SigningKeyError::Key { path, source })?)
        }
        (None, _) => None,
    };
    if let Some(signing) = signing {
        ring.set(KeySet::new(signing));
    }
    if !options.verification_key_files.is_empty() {
        let mut keys = Vec::new();
        for path in &options.verification_key_files {
            keys.extend(read(path, VerifyingKey::all_from_pem)?);
        }
        ring.verify_also(keys).map_err(SigningKeyError::Make)?;
    }
    Ok(())
}

fn read<K>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<K, KeyError>,
) -> Result<K, SigningKeyError> {
    let pem = read_file(path)?;
    parse(&pem).map_err(|source| SigningKeyError::Key { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_registry::jwt::UnverifiedToken;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt as _;

    const RSA: &[u8] = include_bytes!("../../../jwt/testdata/rsa.key");
    const P384_PUBLIC: &[u8] = include_bytes!("../../../jwt/testdata/p384.pub");

    fn options() -> ServeOptions {
        ServeOptions::new((Ipv4Addr::LOCALHOST, 0))
    }

    /// A token and the number of keys.
    fn opened(options: &ServeOptions) -> (String, usize) {
        let tokens = setpoint_registry::ServiceAccountTokens::new()
            .keys(setpoint_registry::ServiceAccountTokens::new().key_ring());
        open(options, &tokens).unwrap();
        let keys = tokens.key_ring().current().unwrap();
        let token = keys.sign(&serde_json::json!({"iss": "a"})).unwrap();
        (token, keys.jwks()["keys"].as_array().unwrap().len())
    }

    #[test]
    fn key_is_made_in_the_folder_once_for_all_servers() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("pki");
        std::fs::create_dir(&folder).unwrap();
        let options = options().cert_dir(&folder);
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let servers: Vec<_> = (0..8).map(|_| scope.spawn(|| opened(&options).0)).collect();
            servers.into_iter().map(|server| server.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        let files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files, [folder.join(cert_dir::SIGNING_KEY)]);
        let mode = files[0].metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_replace_the_key_and_add_others() {
        let data = tempfile::tempdir().unwrap();
        let (signing, public) = (data.path().join("sa.key"), data.path().join("old.pub"));
        std::fs::write(&signing, RSA).unwrap();
        std::fs::write(&public, P384_PUBLIC).unwrap();
        let by_file = options().service_account_signing_key_file(&signing);
        let (token, n_keys) = opened(&by_file.service_account_key_file(&public));
        assert_eq!(n_keys, 2);
        let keys = KeySet::new(SigningKey::from_pem(RSA).unwrap());
        assert!(keys.verify(UnverifiedToken::parse(&token).unwrap()).is_ok());
        // Without a key to sign with, one is made.
        assert_eq!(opened(&options().service_account_key_file(&public)).1, 2);
        let wrong = options().service_account_signing_key_file(&public);
        let error = open(&wrong, &ServiceAccountTokens::new()).unwrap_err();
        assert!(error.to_string().starts_with("use the key in"), "{error}");
    }
}
