//! Kubeconfigs, and the files that they name, read within bounds.
//!
//! kube-client reads such files as a whole, whatever they are. So the kubeconfig is read here, and
//! the certificates and keys that it names become part of it before a client is made of it. Paths
//! in it are relative to its folder, as for kubectl.

use super::RemoteError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_client::config::{AuthInfo, Cluster, Kubeconfig};
use setpoint_small_file::{SmallFileError, read};
use std::io;
use std::path::Path;

/// Maximum bytes of a kubeconfig, and of each file that it names: 1 MiB.
pub const KUBECONFIG_BYTES_MAX: usize = 1 << 20;

/// Reads a kubeconfig. The clusters and users still have paths, which are absolute. Blocks.
pub(super) fn open(path: &Path) -> Result<Kubeconfig, RemoteError> {
    let failed = |source| RemoteError::File { path: path.to_owned(), source };
    let bytes = read(path, KUBECONFIG_BYTES_MAX).map_err(failed)?;
    let text = text_of(&bytes).ok_or_else(|| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is no text");
        failed(SmallFileError::Read { path: path.to_owned(), source })
    })?;
    let mut kubeconfig =
        Kubeconfig::from_yaml(&text).map_err(|error| super::unusable(path, error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        resolve(folder, &mut cluster.certificate_authority);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        resolve(folder, &mut user.client_certificate);
        resolve(folder, &mut user.client_key);
        resolve(folder, &mut user.token_file);
        // The name of a command is found in the folders of `PATH`.
        if let Some(exec) = &mut user.exec
            && exec.command.as_ref().is_some_and(|command| command.contains('/'))
        {
            resolve(folder, &mut exec.command);
        }
    }
    Ok(kubeconfig)
}

/// As [`open`], with the certificates and keys of the current context. Blocks.
pub(super) fn open_current(path: &Path) -> Result<Kubeconfig, RemoteError> {
    let mut kubeconfig = open(path)?;
    let current = kubeconfig.current_context.clone().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|context| context.name == current);
    let Some(context) = context.and_then(|named| named.context.clone()) else {
        return Ok(kubeconfig);
    };
    let cluster = kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster);
    if let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) {
        take_authority(path, cluster)?;
    }
    let user = kubeconfig.auth_infos.iter_mut();
    let user = user.into_iter().find(|named| Some(&named.name) == context.user.as_ref());
    if let Some(user) = user.and_then(|named| named.auth_info.as_mut()) {
        take_certificate(path, user)?;
    }
    Ok(kubeconfig)
}

/// Reads the authorities of a cluster into it. Blocks.
fn take_authority(path: &Path, cluster: &mut Cluster) -> Result<(), RemoteError> {
    let (file, data) =
        (&mut cluster.certificate_authority, &mut cluster.certificate_authority_data);
    take(path, file, data.is_some(), |pem| *data = Some(pem))
}

/// Reads the certificate and the key of a user into it. Blocks.
pub(super) fn take_certificate(path: &Path, user: &mut AuthInfo) -> Result<(), RemoteError> {
    let (file, data) = (&mut user.client_certificate, &mut user.client_certificate_data);
    take(path, file, data.is_some(), |pem| *data = Some(pem))?;
    let (file, data) = (&mut user.client_key, &mut user.client_key_data);
    take(path, file, data.is_some(), |pem| *data = Some(pem.into()))
}

/// Reads a file in place of its path, unless the kubeconfig has its content.
fn take(
    path: &Path,
    file: &mut Option<String>,
    has_data: bool,
    set: impl FnOnce(String),
) -> Result<(), RemoteError> {
    let Some(file) = file.take().filter(|_| !has_data) else { return Ok(()) };
    let failed = |source| RemoteError::File { path: path.to_owned(), source };
    set(STANDARD.encode(read(Path::new(&file), KUBECONFIG_BYTES_MAX).map_err(failed)?));
    Ok(())
}

fn resolve(folder: &Path, file: &mut Option<String>) {
    if let Some(path) = file
        && let Some(absolute) = folder.join(&*path).to_str()
    {
        *path = absolute.to_owned();
    }
}

/// A text in UTF-8, or in UTF-16 after its mark.
fn text_of(bytes: &[u8]) -> Option<String> {
    let units = |bytes: &[u8], of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| of([pair[0], pair[1]])).collect();
        String::from_utf16(&units).ok()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => units(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => units(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: own
contexts:
- {name: own, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: "https://a.example", certificate-authority: ca.pem}}
- {name: other, cluster: {server: "https://b.example", certificate-authority: missing.pem}}
users:
- {name: u, user: {client-certificate: u.pem, client-key: keys/u.key, tokenFile: token}}
- {name: other, user: {client-certificate: missing.pem}}
"#;

    #[test]
    fn the_files_of_the_current_context_are_read_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        std::fs::create_dir(folder.path().join("keys")).unwrap();
        for name in ["ca.pem", "u.pem", "keys/u.key"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let mut read = open_current(&path).unwrap();
        let cluster = read.clusters.remove(0).cluster.unwrap();
        assert_eq!(cluster.certificate_authority, None);
        assert_eq!(cluster.certificate_authority_data, Some(STANDARD.encode("ca.pem")));
        let user = read.auth_infos.remove(0).auth_info.unwrap();
        assert_eq!(user.client_certificate_data, Some(STANDARD.encode("u.pem")));
        assert!(user.client_key.is_none() && user.client_key_data.is_some());
        assert_eq!(user.token_file.as_deref(), folder.path().join("token").to_str());
        std::fs::remove_file(folder.path().join("ca.pem")).unwrap();
        let error = open_current(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("use the kubeconfig {}", path.display()));
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, format!("read {}", folder.path().join("ca.pem").display()));
    }

    #[test]
    fn a_kubeconfig_and_its_files_have_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let too_long = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = open_current(&path).unwrap_err();
            matches!(error, RemoteError::File { source: SmallFileError::TooLong { .. }, .. })
        };
        assert!(too_long(&"#".repeat(KUBECONFIG_BYTES_MAX + 1)));
        for file in ["ca.pem", "u.pem", "keys/u.key"] {
            let endless = KUBECONFIG.replace(file, "/dev/zero");
            let others = ["ca.pem", "u.pem", "keys/u.key"];
            let text = others.iter().fold(endless, |text, name| text.replace(name, "/dev/null"));
            assert!(too_long(&text), "{file}");
        }
    }

    #[test]
    fn a_kubeconfig_may_be_in_utf_16() {
        let mut bytes = vec![0xff, 0xfe];
        bytes.extend("kind: Config".encode_utf16().flat_map(u16::to_le_bytes));
        assert_eq!(text_of(&bytes).as_deref(), Some("kind: Config"));
        assert_eq!(text_of("\u{feff}a".as_bytes()).as_deref(), Some("a"));
        assert_eq!(text_of(b"\xff"), None);
    }
}
