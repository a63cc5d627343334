//! Certificates in a data folder: kubeconfigs remain valid after a restart.

use crate::server::{Server, part};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

fn start(data: &Path) -> Server {
    Server::start_with(&["--data".as_ref(), data.as_os_str()])
}

/// Lines of a kubeconfig except the server's address.
fn credentials(server: &Server) -> String {
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("server:")).collect()
}

#[test]
fn kubeconfig_is_valid_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    let before = credentials(&server);
    let old = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let old_url = server.url.clone();
    assert!(server.stop("TERM").success());
    let mut server = start(data.path());
    assert_eq!(credentials(&server), before);
    assert!(!server.stop("KILL").success());
    let server = start(data.path());
    assert_eq!(credentials(&server), before);

    // The port differs in a test; everything else is from the old file.
    let old = server.file("old", &old.replace(&old_url, &server.url));
    let kubectl = |kubeconfig: &Path, more: &[&str]| {
        let mut command = Command::new(part("SETPOINT_TEST_KUBECTL"));
        command.env_clear().env("HOME", server.folder.path()).env("KUBECONFIG", kubeconfig);
        let output = command.args(["get", "--raw", "/version"]).args(more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (ok, output) = kubectl(&old, &[]);
    assert!(ok, "{output}");
    // A server with another folder has another CA, so its certificate is refused.
    let other_data = tempfile::tempdir().unwrap();
    let other = start(other_data.path());
    assert_ne!(credentials(&other), before);
    let (ok, output) = kubectl(&old, &["--server", &other.url]);
    assert!(!ok && output.contains("certificate"), "{output}");
}

#[test]
fn unusable_certificates_cause_a_clear_error() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    assert!(server.stop("TERM").success());
    let pki = data.path().join("pki");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&pki), mode(&pki.join("admin.key"))), (0o700, 0o600));
    let refusal = || {
        let arguments: [&OsStr; 5] = [
            "up".as_ref(),
            "--secure-port".as_ref(),
            "0".as_ref(),
            "--data".as_ref(),
            data.path().as_ref(),
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let key = pki.join("ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let text = refusal();
    assert!(text.contains("ca.key is open to others (mode 640)"), "{text}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let whole = std::fs::read(&key).unwrap();
    std::fs::write(&key, &whole[..whole.len() / 2]).unwrap();
    let text = refusal();
    assert!(text.contains("ca.key is damaged"), "{text}");
    std::fs::write(&key, whole).unwrap();
    start(data.path());
}
