//! `/version`.

use serde_json::{Value, json};

/// The Kubernetes version that this server is compatible with.
const MAJOR: &str = "1";
/// See [`MAJOR`].
const MINOR: &str = "36";
/// A semantic version, as clients parse it; the part after the plus names this server.
pub const GIT_VERSION: &str = "v1.36.2+setpoint";

/// `1.36`.
pub(crate) fn minor() -> String {
    format!("{MAJOR}.{MINOR}")
}

/// The build as the labels of Kubernetes' metric `kubernetes_build_info`.
pub fn build_info() -> [(&'static str, String); 9] {
    let document = document();
    [
        ("major", "major"),
        ("minor", "minor"),
        ("git_version", "gitVersion"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("build_date", "buildDate"),
        ("go_version", "goVersion"),
        ("compiler", "compiler"),
        ("platform", "platform"),
    ]
    .map(|(label, member)| (label, document[member].as_str().unwrap_or_default().to_owned()))
}

/// The document.
pub(crate) fn document() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

/// The architecture of this machine, as Go names it.
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
