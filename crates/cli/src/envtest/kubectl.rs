//! The program under the name `kubectl`: runs a real one.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Environment variable: the path of the real kubectl.
const KUBECTL: &str = "SETPOINT_KUBECTL";
/// Environment variable, set for the program that is run: if it is one like this, it does not
/// search again.
const SEARCHED: &str = "SETPOINT_KUBECTL_SEARCHED";

/// Replaces this process by the real kubectl.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let given = std::env::var_os(KUBECTL).filter(|path| !path.is_empty()).map(PathBuf::from);
    let found = match given {
        _ if std::env::var_os(SEARCHED).is_some() => None,
        Some(path) => Some(path),
        None => find(),
    };
    let Some(path) = found else {
        eprintln!(
            "kubectl: there is no kubectl in PATH, and setpoint brings none: install one, or set {KUBECTL} to its path"
        );
        return ExitCode::from(127);
    };
    // Returns only if it fails.
    let error = Command::new(&path).args(arguments).env(SEARCHED, "true").exec();
    eprintln!("kubectl: run {}: {error}", path.display());
    ExitCode::from(126)
}

/// The first kubectl in PATH that is another file.
fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let own_folder = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join("kubectl")).find(|path| {
        let Ok(real) = path.canonicalize() else { return false };
        let is_program = real
            .metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        is_program && Some(&real) != own.as_ref() && real.parent() != own_folder.as_deref()
    })
}
