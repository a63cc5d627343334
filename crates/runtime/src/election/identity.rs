//! Who this process is: asked of the machine, at a program's edge.

use std::{fs, io, path::Path};

use super::OptionsError;

/// Where a pod finds the namespace of its service account.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// `<host name>_<uuid>`, the uuid drawn from the machine's chance: LE-4. Another one at each call.
///
/// An identity must be this process's alone, also among its own restarts, so no seed serves here.
/// It is what a program asks for once, at its edge, as [`Clock::wall`](crate::Clock::wall).
///
/// # Errors
///
/// The machine has no source of chance.
pub fn machine_identity() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let uuid = crate::pass::ReconcileId(u128::from_be_bytes(bytes));
    Ok(format!("{}_{uuid}", host_name()))
}

fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// The namespace of the pod that this process runs in, as its service account's file tells it:
/// LE-3.
///
/// # Errors
///
/// There is no such file, or it is empty.
pub fn in_cluster_namespace() -> Result<String, OptionsError> {
    namespace_of(Path::new(NAMESPACE_FILE))
}

pub(super) fn namespace_of(file: &Path) -> Result<String, OptionsError> {
    let text = fs::read_to_string(file).and_then(|text| match text.trim() {
        "" => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        text => Ok(text.to_owned()),
    });
    text.map_err(|source| OptionsError::NoNamespace { path: file.display().to_string(), source })
}
