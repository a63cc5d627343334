//! Kubeconfig files: the server's address and the client's credentials.

use super::ServeError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sec1::der::{SecretDocument, pem::PemLabel as _};
use sec1::pkcs8::PrivateKeyInfo;
use sec1::{ALGORITHM_OID, EcParameters, EcPrivateKey, LineEnding};
use serde::Serialize;
use setpoint_apiserver::listen::Pki;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// File mode: readable by its owner only, because the file contains a private key.
const MODE: u32 = 0o600;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    clusters: [Named<Cluster>; 1],
    users: [Named<User>; 1],
    contexts: [Named<Context>; 1],
    current_context: &'static str,
}

#[derive(Debug, Serialize)]
struct Named<T> {
    name: &'static str,
    #[serde(flatten)]
    value: T,
}

#[derive(Debug, Serialize)]
struct Cluster {
    cluster: ClusterMembers,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterMembers {
    server: String,
    certificate_authority_data: String,
}

#[derive(Debug, Serialize)]
struct User {
    user: UserMembers,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct UserMembers {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
    token: String,
}

#[derive(Debug, Serialize)]
struct Context {
    context: ContextMembers,
}

#[derive(Debug, Serialize)]
struct ContextMembers {
    cluster: &'static str,
    user: &'static str,
}

/// Renders the administrator's kubeconfig as YAML. It has both a certificate and a token, for
/// clients that support only one of them; only the token if the server does not trust the
/// certificate. `ca` is the CA of the server's certificate, in PEM.
pub(super) fn render(
    server: &str,
    ca: &str,
    pki: &Pki,
    is_trusted: bool,
) -> Result<String, ServeError> {
    const NAME: &str = "setpoint";
    let (certificate, key) = pki.admin_pem();
    let labelled = labelled(key);
    let key = labelled.as_deref().unwrap_or(key);
    let encoded = |pem: &str| is_trusted.then(|| STANDARD.encode(pem));
    let config = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: [Named {
            name: NAME,
            value: Cluster {
                cluster: ClusterMembers {
                    server: server.to_owned(),
                    certificate_authority_data: STANDARD.encode(ca),
                },
            },
        }],
        users: [Named {
            name: "admin",
            value: User {
                user: UserMembers {
                    client_certificate_data: encoded(certificate),
                    client_key_data: encoded(key),
                    token: pki.admin_token().to_owned(),
                },
            },
        }],
        contexts: [Named {
            name: NAME,
            value: Context { context: ContextMembers { cluster: NAME, user: "admin" } },
        }],
        current_context: NAME,
    };
    serde_saphyr::to_string(&config).map_err(|error| ServeError::KubeconfigText(error.into()))
}

/// A key whose label names its kind, if it is of an elliptic curve: Java's fabric8 takes what is
/// only a `PRIVATE KEY` for one of RSA.
fn labelled(key: &str) -> Option<String> {
    let (_, document) = SecretDocument::from_pem(key).ok()?;
    let key = PrivateKeyInfo::try_from(document.as_bytes()).ok()?;
    key.algorithm.assert_algorithm_oid(ALGORITHM_OID).ok()?;
    let curve = key.algorithm.parameters_oid().ok()?;
    let mut key = EcPrivateKey::try_from(key.private_key).ok()?;
    key.parameters = Some(EcParameters::NamedCurve(curve));
    let key = SecretDocument::encode_msg(&key).ok()?;
    let pem = key.to_pem(EcPrivateKey::PEM_LABEL, LineEnding::LF).ok()?;
    Some(pem.as_str().to_owned())
}

/// Writes a file atomically, readable by its owner only.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
    let name = path.file_name().ok_or_else(no_name)?;
    let temporary =
        path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The temporary file is of no use. A failure to remove it adds no information.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::time::Timestamp;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn kubeconfig_is_read_back_by_a_client() {
        let pki = Pki::generate(Timestamp::from_secs(1_767_225_600), &[]).unwrap();
        let text = render("https://127.0.0.1:6443", pki.ca_pem(), &pki, true).unwrap();
        let config = kube_client::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("setpoint"));
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.client_certificate_data.is_some() && user.client_key_data.is_some());
        let text: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let key = &text["users"][0]["user"]["client-key-data"];
        let key = STANDARD.decode(key.as_str().unwrap()).unwrap();
        let key = String::from_utf8(key).unwrap();
        assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{key}");
        let (_, key) = SecretDocument::from_pem(&key).unwrap();
        let key: EcPrivateKey<'_> = key.decode_msg().unwrap();
        assert!(key.parameters.is_some(), "clients need the curve");
    }

    #[test]
    fn file_is_replaced_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "old").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
