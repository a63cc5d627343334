//! `/version`.

use serde_json::{Value, json};
use setpoint_registry::{Emulation, Release};

/// The major version of Kubernetes that this server is compatible with.
const MAJOR: &str = "1";
/// A semantic version, as clients parse it; the part after the plus names this server.
pub const GIT_VERSION: &str = "v1.36.2+setpoint";

/// The build as the labels of Kubernetes' metric `kubernetes_build_info`.
pub fn build_info() -> [(&'static str, String); 9] {
    let document = document(Emulation::default());
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
pub(crate) fn document(emulation: Emulation) -> Value {
    let minor = |release: Release| release.minor().to_string();
    json!({
        "major": MAJOR,
        "minor": minor(Release::PRESENT),
        "emulationMajor": MAJOR,
        "emulationMinor": minor(emulation.release()),
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": minor(emulation.min_compatibility()),
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
